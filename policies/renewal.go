package policies

// Opens says that t is the first attempt of the first turn of its thread. Drivers give the numbers of threads and
// sessions that have ended to new ones, so whatever is known of the number then is about another thread.
func (t *Turn) Opens() bool { return t.Number == 1 && t.Retry == 0 }

// renew forgets the thread that had the number of t before.
func (v *View) renew(t *Turn) {
	if t.Opens() && v.hasThread(t.Thread) && v.threads[t.Thread].running == 0 {
		v.threads[t.Thread] = thread{last: NoReplica}
	}
}
