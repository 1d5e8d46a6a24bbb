package vllmmetrics

import (
	"bytes"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func parse(t testing.TB, text string) *Scrape {
	t.Helper()
	s, err := Parse(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// known is the figures of m that are known.
func known(m *Metrics) map[Figure]float64 {
	out := map[Figure]float64{}
	for f := range NumFigures {
		if v, ok := m.Value(f); ok {
			out[f] = v
		}
	}
	return out
}

func TestParseNames(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[Figure]float64
	}{
		{"nothing", "", map[Figure]float64{}},
		{"not vLLM's", "# TYPE up gauge\nup 1\nprocess_open_fds 7\n", map[Figure]float64{}},
		{"gauges without a type", "vllm:num_requests_running{model_name=\"m\"} 3\nvllm:num_requests_waiting 0\n", map[Figure]float64{Running: 3, Waiting: 0}},
		{"new names", "vllm:kv_cache_usage_perc 0.25\nvllm:prefix_cache_queries_total 100\nvllm:prefix_cache_hits_total 40\n", map[Figure]float64{Usage: .25, QueryTokens: 100, HitTokens: 40}},
		{"old names", "vllm:gpu_cache_usage_perc 0.25\nvllm:gpu_prefix_cache_queries_total 100\nvllm:gpu_prefix_cache_hits_total 40\n", map[Figure]float64{Usage: .25, QueryTokens: 100, HitTokens: 40}},
		{"counters without _total", "# TYPE vllm:prefix_cache_queries counter\nvllm:prefix_cache_queries 100\nvllm:num_preemptions 2\nvllm:prompt_tokens 5\n", map[Figure]float64{QueryTokens: 100, Preemptions: 2, PromptTokens: 5}},
		{"both names, of which the new one counts", "vllm:kv_cache_usage_perc 0.5\nvllm:gpu_cache_usage_perc 0.25\n", map[Figure]float64{Usage: .5}},
		{"waiting by reason", "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 4\nvllm:num_requests_waiting_by_reason{reason=\"deferred\"} 1\nvllm:num_requests_waiting_by_reason{reason=\"new\"} 9\n",
			map[Figure]float64{WaitingForCapacity: 4, WaitingDeferred: 1}},
		{"prompt tokens by source", "vllm:prompt_tokens_by_source_total{source=\"local_compute\"} 60\nvllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"} 30\nvllm:prompt_tokens_by_source_total{source=\"external_kv_transfer\"} 10\n",
			map[Figure]float64{PromptLocalCompute: 60, PromptLocalHit: 30, PromptExternal: 10}},
		{"configuration", "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"7000\",cache_dtype=\"auto\"} 1\n", map[Figure]float64{BlockTokens: 16, Blocks: 7000}},
		{"configuration that is not known", "vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"None\"} 1\n", map[Figure]float64{BlockTokens: 16}},
		{"histogram", "# TYPE vllm:time_to_first_token_seconds histogram\nvllm:time_to_first_token_seconds_bucket{le=\"0.1\"} 1\nvllm:time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\nvllm:time_to_first_token_seconds_sum 1.5\nvllm:time_to_first_token_seconds_count 2\n",
			map[Figure]float64{TTFTSeconds: 1.5, TTFTCount: 2}},
		{"histogram under its old name", "# TYPE vllm:time_per_output_token_seconds histogram\nvllm:time_per_output_token_seconds_bucket{le=\"+Inf\"} 2\nvllm:time_per_output_token_seconds_sum 1.5\nvllm:time_per_output_token_seconds_count 2\n",
			map[Figure]float64{InterTokenSeconds: 1.5, InterTokenCount: 2}},
		{"two models", "vllm:num_requests_running{model_name=\"a\"} 3\nvllm:num_requests_running{model_name=\"b\"} 4\n", map[Figure]float64{Running: 7}},
		{"carriage returns are no part of it", "vllm:num_requests_running 3 1700000000000\n\n# a remark\n", map[Figure]float64{Running: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parse(t, c.text)
			total := s.Total()
			if diff := cmp.Diff(c.want, known(&total)); diff != "" || len(s.Refused) > 0 {
				t.Errorf("(-expected +got):\n%s%v", diff, s.Refused)
			}
		})
	}
}

func TestFiguresThatAreNone(t *testing.T) {
	for _, v := range []string{"NaN", "+Inf", "-Inf", "-1"} {
		s := parse(t, "vllm:num_requests_running "+v+"\nvllm:num_requests_waiting 2\nvllm:prefix_cache_queries_total "+v+"\n")
		total := s.Total()
		if diff := cmp.Diff(map[Figure]float64{Waiting: 2}, known(&total)); diff != "" {
			t.Errorf("%s (-expected +got):\n%s", v, diff)
		}
		if diff := cmp.Diff([]string{"vllm:num_requests_running", "vllm:prefix_cache_queries_total"}, s.Refused); diff != "" {
			t.Errorf("%s: refused (-expected +got):\n%s", v, diff)
		}
	}
	s := parse(t, "vllm:kv_cache_usage_perc 1.01\nvllm:num_requests_running{model_name=\"a\"} -1\nvllm:num_requests_running{model_name=\"b\"} 3\n")
	if total := s.Total(); len(known(&total)) != 0 || len(s.Refused) != 2 {
		t.Errorf("%v, refused %v; expected nothing known: a sum with a part that is none is none", known(&total), s.Refused)
	}
	var m Metrics
	if m.Set(Running, math.NaN()) || m.Set(Usage, 2) || m.Has(Running) || m.Has(Usage) || !m.Set(Usage, 1) {
		t.Error("a figure that is none was set")
	}
}

func TestSeveralEngines(t *testing.T) {
	s := parse(t, `vllm:num_requests_running{engine="1"} 3
vllm:num_requests_running{engine="0"} 1
vllm:num_requests_waiting{engine="0"} 5
vllm:kv_cache_usage_perc{engine="0"} 0.5
vllm:kv_cache_usage_perc{engine="1"} 0.25
vllm:cache_config_info{engine="0",block_size="16",num_gpu_blocks="100"} 1
vllm:cache_config_info{engine="1",block_size="16",num_gpu_blocks="200"} 1
`)
	if len(s.Engines) != 2 || s.Engines[0].Label != "0" || s.Engine("1") == nil || s.Engine("2") != nil {
		t.Fatalf("engines %+v", s.Engines)
	}
	if diff := cmp.Diff(map[Figure]float64{Running: 3, Usage: .25, Blocks: 200, BlockTokens: 16}, known(s.Engine("1"))); diff != "" {
		t.Errorf("engine 1 (-expected +got):\n%s", diff)
	}
	total := s.Total()
	if diff := cmp.Diff(map[Figure]float64{Running: 4, Usage: .375, Blocks: 300, BlockTokens: 16}, known(&total)); diff != "" {
		t.Errorf("all; what one does not say is not known of all (-expected +got):\n%s", diff)
	}
	s.Engine("1").Set(BlockTokens, 32)
	if total := s.Total(); total.Has(BlockTokens) {
		t.Error("engines with blocks of 16 and 32 have one size in all")
	}
}

func TestDeltas(t *testing.T) {
	var before, after Metrics
	if _, ok := after.Delta(&before, HitTokens); ok {
		t.Error("nothing has grown from nothing")
	}
	before.Set(HitTokens, 100)
	if _, ok := after.Delta(&before, HitTokens); ok || after.Restarted(&before) {
		t.Error("a counter that is gone has grown")
	}
	after.Set(HitTokens, 130)
	if d, ok := after.Delta(&before, HitTokens); d != 30 || !ok || after.Restarted(&before) {
		t.Errorf("grown by %v, %v, expected 30", d, ok)
	}
	after.Set(HitTokens, 20)
	if d, ok := after.Delta(&before, HitTokens); d != 20 || !ok || !after.Restarted(&before) {
		t.Errorf("grown by %v, %v after a restart, expected 20", d, ok)
	}
	before.Set(Running, 5)
	after.Set(Running, 1)
	if _, ok := after.Delta(&before, Running); ok {
		t.Error("a gauge has grown")
	}
}

// The deltas of a counter that is reset at any time add up to what was counted, but for what was lost between the last scrape
// and a reset; they are never negative and never more.
func TestDeltasAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var before, now Metrics
		before.Set(QueryTokens, 0)
		counted, seen, value, lost := 0.0, 0.0, 0.0, 0.0
		for range rapid.IntRange(1, 50).Draw(t, "scrapes") {
			unseen := 0.0
			for range rapid.IntRange(0, 3).Draw(t, "changes") {
				if rapid.IntRange(0, 9).Draw(t, "reset") == 0 {
					value = 0
					lost += unseen
					unseen = 0
				} else {
					n := float64(rapid.IntRange(0, 1000).Draw(t, "grown"))
					value, counted, unseen = value+n, counted+n, unseen+n
				}
			}
			now.Set(QueryTokens, value)
			d, ok := now.Delta(&before, QueryTokens)
			if !ok || d < 0 {
				t.Fatalf("grown by %v, %v", d, ok)
			}
			seen += d
			before = now
		}
		if seen > counted {
			t.Fatalf("%v seen of %v counted", seen, counted)
		}
		if lost == 0 && seen != counted && value == counted {
			t.Fatalf("%v seen of %v counted, and nothing was lost", seen, counted)
		}
	})
}

// What is written is read back as it was, and what is unknown stays so.
func TestWriteAndParse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var engines []Engine
		for i := range rapid.IntRange(1, 3).Draw(t, "engines") {
			e := Engine{Label: string(rune('0' + i))}
			for f := range NumFigures {
				if rapid.Bool().Draw(t, "known") {
					v := float64(rapid.IntRange(0, 1<<30).Draw(t, "value"))
					if f == Usage {
						v /= 1 << 30
					}
					e.Set(f, v)
				}
			}
			for f := QueueSeconds; f <= InterTokenSeconds; f += 2 { // a histogram has both or neither
				if e.Has(f) != e.Has(f+1) {
					e.Set(f, 1)
					e.Set(f+1, 1)
				}
			}
			if e.Has(BlockTokens) && !e.Has(Blocks) {
				e.Set(Blocks, 1)
			}
			e.Set(Running, 1)
			engines = append(engines, e)
		}
		text := Write(nil, "a \"model\"\n\\", engines)
		s, err := Parse(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err, string(text))
		}
		if diff := cmp.Diff(engines, s.Engines, cmp.AllowUnexported(Metrics{})); diff != "" || len(s.Refused) > 0 {
			t.Fatalf("(-written +read):\n%s%s", diff, text)
		}
	})
}

func TestParseRefuses(t *testing.T) {
	for name, text := range map[string]string{
		"a word for a number": "vllm:num_requests_running three\n",
		"no value":            "vllm:num_requests_running\n",
		"cut in a label":      "vllm:num_requests_running{engine=\"",
		"a page of HTML":      "<html><body>502</body></html>\n",
		"binary":              "\x00\x01\x02\n",
	} {
		if s, err := Parse(strings.NewReader(text)); err == nil {
			t.Errorf("%s was taken: %+v", name, s)
		}
	}
	if _, err := Parse(strings.NewReader(strings.Repeat("# a remark that goes on and on\n", MaxBytes/30))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a text that is too long: %v", err)
	}
	var many strings.Builder
	for i := range MaxEngines + 1 {
		many.WriteString("vllm:num_requests_running{engine=\"" + strings.Repeat("x", i) + "\"} 1\n")
	}
	if _, err := Parse(strings.NewReader(many.String())); !errors.Is(err, ErrTooLarge) {
		t.Errorf("too many engines: %v", err)
	}
}

// Whatever a server sends: an error, or figures that are figures.
func FuzzParse(f *testing.F) {
	f.Add([]byte("vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 3\nvllm:kv_cache_usage_perc NaN\n"))
	f.Add([]byte("# TYPE vllm:time_to_first_token_seconds histogram\nvllm:time_to_first_token_seconds_sum -1\nvllm:time_to_first_token_seconds_count 2\n"))
	f.Add([]byte("# TYPE vllm:num_preemptions counter\nvllm:num_preemptions_total 1e300\nvllm:cache_config_info{block_size=\"-16\",num_gpu_blocks=\"inf\"} 1\n"))
	var e Engine
	for figure := range NumFigures {
		e.Set(figure, 1)
	}
	f.Add(Write(nil, "m", []Engine{e}))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := Parse(bytes.NewReader(text))
		if err != nil {
			return
		}
		total := s.Total()
		for _, m := range append(s.Engines, Engine{Metrics: total}) {
			for figure := range NumFigures {
				if v, ok := m.Value(figure); ok && (!(v >= 0) || math.IsInf(v, 0) || figure == Usage && v > 1) {
					t.Fatalf("figure %d is %v", figure, v)
				}
			}
		}
	})
}

// The names that the documentation of signals lists are all read, from a page of a real server's form.
func TestAPageOfAServer(t *testing.T) {
	data, err := os.ReadFile("testdata/page.txt")
	if err != nil {
		t.Fatal(err)
	}
	s := parse(t, string(data))
	want := map[Figure]float64{Running: 2, Waiting: 1, WaitingForCapacity: 1, WaitingDeferred: 0, Usage: .375, QueryTokens: 5000, HitTokens: 3200, ExternalQueryTokens: 0,
		ExternalHitTokens: 0, PromptLocalCompute: 1800, PromptLocalHit: 3200, PromptExternal: 0, PromptTokens: 5000, GenerationTokens: 640, Preemptions: 3, Blocks: 7472, BlockTokens: 16,
		QueueSeconds: .5, QueueCount: 10, PrefillSeconds: 2, PrefillCount: 10, DecodeSeconds: 30, DecodeCount: 10, E2ESeconds: 33, E2ECount: 10, TTFTSeconds: 2.5, TTFTCount: 10,
		InterTokenSeconds: 30, InterTokenCount: 630}
	if diff := cmp.Diff(want, known(s.Engine("0"))); diff != "" {
		t.Errorf("(-expected +got):\n%s", diff)
	}
}
