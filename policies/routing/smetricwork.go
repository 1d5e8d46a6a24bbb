package routing

import "github.com/sluice-sim/sluice/policies"

// prefillWork is w(n, L) = n + n(L - n/2)/doubling: the cost of computing the last n of l prompt tokens, in tokens at
// the cost of an empty context. doubling 0 leaves attention out.
func prefillWork(n, l int32, doubling float64) float64 {
	return queuedWork(int64(n), policies.Moment(n, l), doubling)
}

// queuedWork is the same for the sums over several prompts.
func queuedWork(tokens, moment int64, doubling float64) float64 {
	if doubling <= 0 {
		return float64(tokens)
	}
	return float64(tokens) + float64(moment)/float64(2*doubling)
}

// ttftBudget is the time to a first token that a prompt of l tokens is allowed, in seconds: 1 s and 62.5 ms for each
// 1000 tokens.
func ttftBudget(l int32) float64 { return 1 + float64(l)/16000 }

// overloadFits says whether load is at most factor times the mean of n loads with that sum.
func overloadFits(load, sum int64, n int, factor float64) bool {
	return float64(load*int64(n)) <= factor*float64(sum)
}

// decodeBalance is how many seconds a decode is ahead of what it is due: 1 s, 1 s for each 8000 prompt tokens and tpot
// for each output token so far, less the time since its dispatch.
func decodeBalance(prompt, output int32, tpot, elapsed float64) float64 {
	return 1 + float64(prompt)/8000 + float64(float64(output)*tpot) - elapsed
}
