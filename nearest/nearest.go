// Package nearest finds the name that a misspelt one most likely means. It imports nothing of ours.
package nearest

// Name is the candidate that a misspelt name most likely means, the first of equals: one edit away and one more for every three bytes
// of the name, two for a short one, whatever the case of ASCII letters. "" when none is near.
func Name(name string, candidates []string) string {
	best, least := "", 2+max(1, len(name)/3)
	for _, c := range candidates {
		if d := Distance(lower(name), lower(c)); d < least {
			best, least = c, d
		}
	}
	return best
}

func lower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

// Distance counts the insertions, deletions, replacements and swaps of neighbours between two words, in bytes. A word of more
// than 64 bytes is 64 away from all others.
func Distance(a, b string) int {
	const longest = 64
	if len(a) > longest || len(b) > longest {
		return longest
	}
	var rows [3][longest + 1]int
	for j := range len(b) + 1 {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		row, last, before := &rows[i%3], &rows[(i+2)%3], &rows[(i+1)%3]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
	}
	return rows[len(a)%3][len(b)]
}
