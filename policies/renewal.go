package policies

// Opens says that t is the first attempt of the first turn of its thread. Drivers give the numbers of threads and
// sessions that have ended to new ones, so whatever is known of the number then is about another thread.
func (t *Turn) Opens() bool { return t.Number == 1 && t.Retry == 0 }

// renew forgets the thread that had the number of t before, and that its numbers have ended.
func (v *View) renew(t *Turn) {
	if t.Opens() && v.hasThread(t.Thread) && v.threads[t.Thread].running == 0 {
		v.threads[t.Thread] = thread{last: NoReplica}
	}
	if v.hasThread(t.Thread) {
		v.threads[t.Thread].ended = false
	}
	if v.SessionEnded(t.Session) {
		v.ended[t.Session] = false
	}
}

func (v *View) endThread(f *Fact) bool {
	if f.Thread < 0 || f.Session < 0 {
		return false
	}
	v.thread(f.Thread).ended = true
	return true
}

func (v *View) endSession(f *Fact) bool {
	if f.Session < 0 {
		return false
	}
	for int(f.Session) >= len(v.ended) {
		v.ended = append(v.ended, false)
	}
	v.ended[f.Session] = true
	return true
}

// ThreadEnded says whether t has finished and no turn of it, or of another with its number, has arrived since. Turns of it
// may still wait and run: those of clients that left without a word.
func (v *View) ThreadEnded(t ThreadID) bool { return v.hasThread(t) && v.threads[t].ended }

// SessionEnded says the same of a session. A gate that gives slots to sessions lets the waiting turns of one that has
// ended go without a slot: nobody would give it back, and nothing else would ever wake them.
func (v *View) SessionEnded(s SessionID) bool {
	return s >= 0 && int(s) < len(v.ended) && v.ended[s]
}
