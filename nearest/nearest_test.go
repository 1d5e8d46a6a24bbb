package nearest

import "testing"

func TestDistance(t *testing.T) {
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"", "abc", 3}, {"router", "router", 0}, {"rooter", "router", 1}, {"ruoter", "router", 1},
		{"kitten", "sitting", 3}, {"sesion", "session", 1}, {"ca", "abc", 3},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
		if got := Distance(c.b, c.a); got != c.want {
			t.Errorf("Distance(%q, %q) = %d, want %d", c.b, c.a, got, c.want)
		}
	}
}

func TestName(t *testing.T) {
	names := []string{"sticky", "sticky-bounded", "smetric", "lmetric"}
	for name, want := range map[string]string{"stiky": "sticky", "SMetric": "smetric", "metric": "smetric", "xyz": "", "bounded": "", "sticky-bound": "sticky-bounded"} {
		if got := Name(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
