package scenarios

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

const (
	mostShares = 8

	// sharesSlack is how far the sum of shares may be from 1.
	sharesSlack = 1e-9

	// sharesPattern is the text of shares; that their sum is 1 no pattern can say.
	sharesPattern = `^ *[0-9.][0-9.eE+-]*(( +| *, *)[0-9.][0-9.eE+-]*){0,7} *$`
)

func classSharesKey() key {
	return key{path: "arrivals.class_shares", kind: sharesKey, def: "1",
		doc:   `Share of each service class in the sessions, such as "0.7,0.3", at most 8 that sum to 1. Class 0 comes first and is the most important. A session's class is drawn from the seed; only gates that know classes look at it. Spaces may stand for the commas, as --vary and --arm need it.`,
		store: func(s *Scenario, v value) { s.Arrivals.ClassShares = v.shares },
		load:  func(s *Scenario) value { return value{shares: s.Arrivals.ClassShares} }}
}

// decodeShares reads numbers parted by commas or, without any comma, by spaces.
func decodeShares(text string) (value, string) {
	parts := strings.Fields(text)
	if strings.Contains(text, ",") {
		parts = strings.Split(text, ",")
	}
	if len(parts) == 0 || len(parts) > mostShares {
		return value{}, fmt.Sprintf("expected 1 to %d shares, found %d", mostShares, len(parts))
	}
	shares, sum := make([]float64, len(parts)), 0.0
	for i, part := range parts {
		part = strings.TrimSpace(part)
		x, err := strconv.ParseFloat(part, 64)
		if err != nil || math.IsNaN(x) || strings.ContainsAny(part, "_xXpP") || x < 0 || x > 1 {
			return value{}, fmt.Sprintf("expected shares from 0 to 1 such as 0.7,0.3, found %q for class %d", clip(part), i)
		}
		shares[i] = math.Abs(x) // no negative zero
		sum += shares[i]
	}
	if math.Abs(sum-1) > sharesSlack {
		return value{}, fmt.Sprintf("the shares must sum to 1, but %s sum to %s", clip(text), strconv.FormatFloat(sum, 'g', 12, 64))
	}
	return value{shares: shares}, ""
}

func formatShares(shares []float64) string {
	texts := make([]string, len(shares))
	for i, x := range shares {
		texts[i] = formatNumber(x)
	}
	return strings.Join(texts, ",")
}
