package policies

// attemptIndex maps attempts to slots: open addressing with linear probing, so that asking for one touches little memory. The
// zero value is empty and ready to use.
type attemptIndex struct {
	entries []attemptEntry // the length is a power of two, at most 3/4 used
	used    int
	shift   uint8 // 64 - log2(len(entries))
}

type attemptEntry struct {
	key  AttemptID // the attempt + 1; 0 where the entry is empty
	slot int32
}

func (x *attemptIndex) len() int { return x.used }

// home is where the search for a key starts (multiplication by 2^64 over the golden ratio).
func (x *attemptIndex) home(key AttemptID) int {
	return int(uint64(key) * 0x9E3779B97F4A7C15 >> x.shift)
}

// find is the entry of a key, or the empty one where it would go.
func (x *attemptIndex) find(key AttemptID) int {
	i := x.home(key)
	for x.entries[i].key != key && x.entries[i].key != 0 {
		i = (i + 1) & (len(x.entries) - 1)
	}
	return i
}

// get is the slot of an attempt; ok is false if it has none.
func (x *attemptIndex) get(a AttemptID) (slot int32, ok bool) {
	if x.used == 0 || a < 0 {
		return 0, false
	}
	e := &x.entries[x.find(a+1)]
	return e.slot, e.key == a+1
}

// set gives an attempt, which is not negative, a slot.
func (x *attemptIndex) set(a AttemptID, slot int32) {
	if (x.used+1)*4 > len(x.entries)*3 {
		x.grow()
	}
	e := &x.entries[x.find(a+1)]
	if e.key == 0 {
		x.used++
	}
	*e = attemptEntry{a + 1, slot}
}

func (x *attemptIndex) grow() {
	old := x.entries
	if len(old) == 0 {
		x.entries, x.shift = make([]attemptEntry, 8), 64-3
		return
	}
	x.entries = make([]attemptEntry, 2*len(old))
	x.shift--
	for _, e := range old {
		if e.key != 0 {
			x.entries[x.find(e.key)] = e
		}
	}
}

// remove forgets an attempt, if it is there, moving later entries of the same chain back so that no mark is left behind.
func (x *attemptIndex) remove(a AttemptID) {
	if _, ok := x.get(a); !ok {
		return
	}
	x.used--
	mask := len(x.entries) - 1
	hole := x.find(a + 1)
	for i := (hole + 1) & mask; x.entries[i].key != 0; i = (i + 1) & mask {
		// The entry may move when the hole lies between its home and where it is.
		if (i-x.home(x.entries[i].key))&mask >= (i-hole)&mask {
			x.entries[hole] = x.entries[i]
			hole = i
		}
	}
	x.entries[hole] = attemptEntry{}
}
