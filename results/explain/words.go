package explain

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-sim/sluice/policies"
)

// meaning is what a reason means, for those who do not know the name.
var meaning = map[policies.Reason]string{
	policies.Ungated:           "there is no gate, or it is off",
	policies.Open:              "no pressure",
	policies.ReservedSession:   "its thread owns a window",
	policies.ResidentPrefix:    "enough of its prompt is resident",
	policies.ProbeUnavailable:  "a probe gave no value, and the gate fails open",
	policies.SlotFree:          "a slot was free",
	policies.SlotOwned:         "its session holds a slot",
	policies.UnderPressure:     "KV usage at or above the watermark and too little of its prompt resident",
	policies.BehindWaiter:      "others arrived before",
	policies.NoSlot:            "all slots are taken",
	policies.Fits:              "there is room for its program",
	policies.ActiveProgram:     "its program is active",
	policies.Resumed:           "its session or program goes on after a pause",
	policies.Forced:            "it had waited as long as a turn may",
	policies.SessionOver:       "its session or program has ended, so it takes no slot",
	policies.Paused:            "its session or program is paused",
	policies.NoRoom:            "there is no room for its program",
	policies.Saturated:         "the pool is saturated",
	policies.QueueFull:         "too many wait",
	policies.WaitedTooLong:     "it waited as long as a turn may",
	policies.Shed:              "its class is refused while the load is high",
	policies.PlacedByGate:      "the gate had chosen the replica",
	policies.LoadBound:         "away from its place, which is over its bound of load",
	policies.Imbalanced:        "by load, since the loads are too far apart",
	policies.Hotspot:           "away from those that hold a prefix that is too popular",
	policies.NoReplicaUp:       "no replica is up",
	policies.SupersededAttempt: "a newer attempt of the same thread arrived",
	policies.ClientLeft:        "its client gave up",
	policies.InTurn:            "by rotation",
	policies.LeastLoaded:       "the smallest load",
	policies.Affinity:          "where its thread went before",
	policies.FirstPlacement:    "by load, since its thread has no place yet",
	policies.HomeLost:          "by load, since its thread's place is gone",
	policies.BestScore:         "the best score",
	policies.Sampled:           "a weighted draw",
	policies.HomeHit:           "the longest resident prefix",
	policies.Spilled:           "by score, since its home is over its limit",
	policies.Predicted:         "the smallest predicted completion time",
}

// because is a reason with its meaning.
func because(r policies.Reason) string {
	if m := meaning[r]; m != "" {
		return r.String() + " (" + m + ")"
	}
	return r.String()
}

// seconds prints picoseconds as seconds, to the microsecond.
func seconds(ps int64) string {
	s := strconv.FormatFloat(float64(ps)/1e12, 'f', 6, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".") + " s"
}

func at(t policies.Time) string { return seconds(int64(t) * 1000) }

// count prints a number with separators.
func count[T ~int32 | ~int64 | ~int](n T) string {
	s := strconv.FormatInt(int64(n), 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func tokens[T ~int32 | ~int64 | ~int](n T) string { return plural(n, "token") }

func plural[T ~int32 | ~int64 | ~int](n T, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return count(n) + " " + what + "s"
}

func percent(part, whole int32) string {
	if whole <= 0 {
		return "-"
	}
	return strconv.Itoa(int(math.Round(100*float64(part)/float64(whole)))) + " %"
}

// figure prints a score; what is not known is a dash.
func figure(x float64) string {
	switch {
	case math.IsNaN(x):
		return "-"
	case x == math.Trunc(x) && math.Abs(x) < 1e15:
		return count(int64(x))
	}
	return strconv.FormatFloat(x, 'g', 6, 64)
}

// grid prints rows in columns that are aligned right, indented.
func grid(rows [][]string) []string {
	var width []int
	for _, row := range rows {
		for k, cell := range row {
			if k == len(width) {
				width = append(width, 0)
			}
			width[k] = max(width[k], len(cell))
		}
	}
	var lines []string
	for _, row := range rows {
		line := "    "
		for k, cell := range row {
			line += fmt.Sprintf("  %*s", width[k], cell)
		}
		lines = append(lines, strings.TrimRight(line, " "))
	}
	return lines
}
