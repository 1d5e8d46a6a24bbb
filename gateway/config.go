package gateway

import (
	"errors"
	"fmt"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/sluice-sim/sluice/gateway/identity"
	"github.com/sluice-sim/sluice/gateway/kvevents"
	"github.com/sluice-sim/sluice/nearest"
	"github.com/sluice-sim/sluice/scenarios"
)

// Config is a gateway's configuration file, with every default filled in. Tags give each key its default, its range and
// its documentation; the reference in the documentation is made of them.
type Config struct {
	Listen     string           `yaml:"listen" def:"127.0.0.1:8080" doc:"Address of the API."`
	Operations string           `yaml:"operations_listen" def:"" doc:"Address of /metrics, /debug/state, /decisions, /decide, /release, /finish_session and /replicas; empty: that of the API."`
	Seed       int64            `yaml:"seed" def:"1" min:"0" max:"9e15" doc:"Seed of the draws that policies make."`
	SecretFile string           `yaml:"secret_file" def:"" doc:"File with at least 16 bytes that key all hashes of this installation. Empty: drawn at the start, so hashes mean nothing in another run or another gateway."`
	Models     []string         `yaml:"models" def:"" doc:"Names that /v1/models lists; empty: those that the replicas list."`
	Replicas   []ReplicaConfig  `yaml:"replicas" doc:"The engines, one entry each. Only these addresses are ever contacted."`
	Identity   IdentityConfig   `yaml:"identity" doc:"How a request says to which session it belongs."`
	Prompt     PromptConfig     `yaml:"prompt" doc:"How prompts that begin alike are recognised."`
	Signals    SignalsConfig    `yaml:"signals" doc:"What is known of the engines."`
	Health     HealthConfig     `yaml:"health" doc:"When an engine takes turns."`
	Limits     LimitsConfig     `yaml:"limits" doc:"What is refused, and how long things may take."`
	Retries    RetriesConfig    `yaml:"retries" doc:"Second attempts."`
	Log        LogConfig        `yaml:"decision_log" doc:"Every decision with what it was based on; sluice replay-decisions reads it."`
	Recorder   RecorderConfig   `yaml:"recorder" doc:"The trace of what passed, which sluice run reads; no text is in it."`
	DrainS     float64          `yaml:"drain_s" def:"30" min:"0" max:"86400" unit:"s" doc:"How long running turns may take to end when the gateway is told to stop."`
	Policy     scenarios.Policy `yaml:"policy" doc:"Gate and router, as in a scenario. Their knobs may change while the gateway runs."`
}

// ReplicaConfig is one engine.
type ReplicaConfig struct {
	Name      string         `yaml:"name" doc:"Alias, in logs, metrics and response headers. Letters, digits, '.', '_' and '-'."`
	URL       string         `yaml:"url" doc:"Base address, such as http://10.0.0.7:8000."`
	APIKeyEnv string         `yaml:"api_key_env" def:"" doc:"Environment variable with a key that is sent to this engine as a bearer token. Empty: the client's own Authorization header passes through."`
	KVTokens  int64          `yaml:"kv_tokens" def:"0" min:"0" max:"9e15" unit:"tokens" doc:"KV capacity; 0: as /metrics says at the start, else unknown."`
	Block     int64          `yaml:"block_tokens" def:"0" min:"0" max:"65536" unit:"tokens" doc:"Tokens of a KV block; 0: as /metrics says at the start, else unknown."`
	Batched   int64          `yaml:"max_batched_tokens" def:"0" min:"0" max:"2147483647" unit:"tokens" doc:"The engine's max_num_batched_tokens; 0: unknown."`
	Prefill   float64        `yaml:"prefill_tokens_per_s" def:"0" min:"0" max:"1e12" unit:"tokens/s" doc:"Cold prefill rate of a prompt of 8k tokens; 0: unknown."`
	Attention float64        `yaml:"attention_doubling_tokens" def:"0" min:"0" max:"1e12" unit:"tokens" doc:"Context at which attention doubles the cost of a prefill token; 0: unknown."`
	KVEvents  KVEventsConfig `yaml:"kv_events" doc:"vLLM's KV events, for policies that need them."`
}

// KVEventsConfig is where one engine publishes its KV events.
type KVEventsConfig struct {
	Endpoint string `yaml:"endpoint" def:"" doc:"ZMQ address of the publisher; empty: none."`
	Replay   string `yaml:"replay" def:"" doc:"ZMQ address where missed batches are asked for, after a gap and when the engine is quiet; empty: after a gap everything known of the engine is dropped."`
	Topic    string `yaml:"topic" def:"" doc:"Topic that is subscribed to."`
	Bind     bool   `yaml:"bind" def:"false" doc:"The engine connects and the gateway listens."`
}

// IdentityConfig is how a request names its session.
type IdentityConfig struct {
	Header string   `yaml:"header" def:"" doc:"Header that is looked at first."`
	Order  []string `yaml:"order" def:"" doc:"Rules in the order in which they are tried; empty: all, in the order of the documentation."`
	Class  string   `yaml:"class_header" def:"" doc:"Header with the service class of a request, 0 (the most important) to 7, for gates that know classes; empty: none is read."`
	Absent int64    `yaml:"default_class" def:"0" min:"0" max:"7" doc:"Service class of a request without that header."`
	Group  string   `yaml:"group_header" def:"" doc:"Header with the group of a request, such as its tenant or repository; policies see a keyed hash of it. Empty: none is read."`
}

// PromptConfig is how prompts are identified.
type PromptConfig struct {
	Basis   string  `yaml:"basis" def:"bytes" enum:"tokens,bytes" doc:"tokens: hashes of the token ids that an engine gives. bytes: hashes of the request's own bytes, four to a token; KV events cannot be joined with them."`
	Source  string  `yaml:"source" def:"tokenize" enum:"tokenize,render" doc:"Basis tokens: the endpoint that gives token ids, /tokenize or /v1/.../render."`
	Timeout float64 `yaml:"timeout_s" def:"0.5" min:"0.001" max:"60" unit:"s" doc:"Basis tokens: after this time the request's bytes are hashed instead."`
	Block   int64   `yaml:"block_tokens" def:"16" min:"1" max:"65536" unit:"tokens" doc:"Tokens of a hashed block. For KV events it is the engines' block size."`
	Blocks  int64   `yaml:"blocks" def:"16777216" min:"1024" max:"1073741824" doc:"Most hashed blocks that are remembered, 8 bytes each."`
	Idle    int64   `yaml:"idle_blocks" def:"1048576" min:"0" max:"1073741824" doc:"Of these, most of prompts that no turn has any more; the least recently used go first."`
}

// SignalsConfig is what is known of the engines.
type SignalsConfig struct {
	ScrapeS        float64     `yaml:"scrape_s" def:"1" min:"0.01" max:"3600" unit:"s" doc:"Interval between two scrapes of an engine's /metrics, if the policies read samples."`
	Always         bool        `yaml:"always" def:"true" doc:"Scrape also for policies that read no sample: it tells a restart, and what /debug/state and /metrics show."`
	ScrapeTimeoutS float64     `yaml:"scrape_timeout_s" def:"1" min:"0.001" max:"60" unit:"s" doc:"A scrape that takes longer has failed."`
	Stale          string      `yaml:"stale" def:"hold-last" enum:"hold-last,ignore,saturated" doc:"What policies see when no scrape succeeded for stale_after_s. hold-last: the last sample, and nothing after hold_s more. ignore: that nothing is known. saturated: a full engine."`
	StaleAfterS    float64     `yaml:"stale_after_s" def:"5" min:"0.01" max:"86400" unit:"s" doc:"Age from which on a sample is stale."`
	HoldS          float64     `yaml:"hold_s" def:"30" min:"0" max:"86400" unit:"s" doc:"How long hold-last holds a stale sample."`
	Probe          ProbeConfig `yaml:"probe" doc:"Questions to the engine while a turn waits for its verdict. Stock vLLM answers none; without an answer gates decide as their documentation says."`
}

// ProbeConfig is how engines are asked.
type ProbeConfig struct {
	Path     string  `yaml:"path" def:"" doc:"Path of the engine that answers POST of {\"tokens\": [..]} with {\"resident_tokens\": n, \"kv_cache_usage\": 0..1}, as the fake engine does at /sluice/resident. Empty: usage is scraped when it is asked for, and what is resident is what KV events say."`
	TimeoutS float64 `yaml:"timeout_s" def:"0.25" min:"0.001" max:"60" unit:"s" doc:"A probe that takes longer has no answer."`
	MaxAgeS  float64 `yaml:"max_age_s" def:"0.1" min:"0" max:"60" unit:"s" doc:"A usage that was scraped so recently answers a usage probe; path is empty."`
}

// HealthConfig says when an engine takes turns.
type HealthConfig struct {
	Path      string  `yaml:"path" def:"/health" doc:"Path that answers 200 when the engine is well."`
	PeriodS   float64 `yaml:"period_s" def:"1" min:"0.01" max:"3600" unit:"s" doc:"Interval between two checks."`
	TimeoutS  float64 `yaml:"timeout_s" def:"1" min:"0.001" max:"60" unit:"s" doc:"A check that takes longer has failed."`
	FailAfter int64   `yaml:"fail_after" def:"2" min:"1" max:"1000" doc:"Checks that fail in a row before an engine counts as down; one that only does not answer in time takes nothing new but is not down. A refused connection counts at once."`
	WedgedS   float64 `yaml:"wedged_s" def:"120" min:"0" max:"86400" unit:"s" doc:"An engine on which a turn runs that had no byte for so long takes nothing new until one moves; 0: never."`
}

// LimitsConfig is what is refused.
type LimitsConfig struct {
	HeaderBytes  int64   `yaml:"header_bytes" def:"65536" min:"4096" max:"16777216" unit:"bytes" doc:"Longest header of a request."`
	BodyBytes    int64   `yaml:"body_bytes" def:"33554432" min:"1024" max:"1073741824" unit:"bytes" doc:"Longest body of a request."`
	Bodies       int64   `yaml:"bodies_bytes" def:"4294967296" min:"1024" max:"9e15" unit:"bytes" doc:"Bodies of all requests that wait or run, together; more are refused. Reading a body takes some times its size for a moment."`
	BodyS        float64 `yaml:"body_s" def:"60" min:"0.1" max:"3600" unit:"s" doc:"How long a client may take to send header and body."`
	PromptTokens int64   `yaml:"prompt_tokens" def:"0" min:"0" max:"16777216" unit:"tokens" doc:"Longest prompt, where its tokens are known; 0: what fits into the KV cache of the largest engine, if that is known."`
	Waiting      int64   `yaml:"waiting" def:"10000" min:"1" max:"1000000" doc:"Turns that wait at the gate; more are refused."`
	Running      int64   `yaml:"running" def:"20000" min:"1" max:"1000000" doc:"Turns that wait or run; more are refused."`
	WaitS        float64 `yaml:"wait_s" def:"600" min:"0.001" max:"86400" unit:"s" doc:"Longest wait at the gate."`
	Sessions     int64   `yaml:"sessions" def:"100000" min:"1" max:"10000000" doc:"Sessions that live; the one that was idle for longest is ended for a new one."`
	SessionIdleS float64 `yaml:"session_idle_s" def:"14400" min:"1" max:"8640000" unit:"s" doc:"A session without a turn for so long has ended."`
	LeaseS       float64 `yaml:"lease_s" def:"3600" min:"0.1" max:"864000" unit:"s" doc:"Longest time a turn may run, and a lease of /decide may be kept."`
	ConnectS     float64 `yaml:"connect_s" def:"2" min:"0.001" max:"600" unit:"s" doc:"Longest time to connect to an engine."`
	RetryAfterS  float64 `yaml:"retry_after_s" def:"1" min:"0" max:"3600" unit:"s" doc:"Retry-After of a refusal that knows no better."`
}

// RetriesConfig bounds second attempts.
type RetriesConfig struct {
	Reroutes   int64   `yaml:"reroutes" def:"1" min:"0" max:"10" doc:"How often a turn is sent elsewhere when its engine fails before the first byte."`
	PerSession int64   `yaml:"per_session" def:"20" min:"0" max:"1000000" doc:"Reroutes and repeated requests (same X-Request-Id) of a session in a window; more are refused."`
	WindowS    float64 `yaml:"window_s" def:"60" min:"0.1" max:"86400" unit:"s" doc:"The window."`
}

// LogConfig is the decision log.
type LogConfig struct {
	Path     string `yaml:"path" def:"" doc:"File; empty: none is written. A file that is there is kept under the name with .1 and so on."`
	MaxBytes int64  `yaml:"max_bytes" def:"1073741824" min:"65536" max:"9e15" unit:"bytes" doc:"The log ends at this size: a later part alone could not be replayed."`
	Tail     int64  `yaml:"tail" def:"256" min:"1" max:"100000" doc:"Lines that /decisions shows."`
}

// RecorderConfig is the recorded trace.
type RecorderConfig struct {
	Dir       string  `yaml:"dir" def:"" doc:"Folder of the files; empty: nothing is recorded."`
	Sample    float64 `yaml:"sample" def:"1" min:"0.000001" max:"1" unit:"fraction" doc:"Share of the sessions that is recorded, chosen by a keyed hash."`
	FileTurns int64   `yaml:"file_turns" def:"200000" min:"1" max:"10000000" doc:"Turns of a file; the next one begins then."`
	FileAgeS  float64 `yaml:"file_age_s" def:"600" min:"1" max:"8640000" unit:"s" doc:"Age at which a file is written although it is not full."`
	Files     int64   `yaml:"files" def:"100" min:"1" max:"100000" doc:"Files that are kept; the oldest are removed."`
	OpenTurns int64   `yaml:"open_turns" def:"1000000" min:"1000" max:"100000000" doc:"Turns of sessions that have not ended that are kept in memory; whole sessions are given up beyond."`
}

// maxConfigBytes bounds a configuration file.
const maxConfigBytes = 1 << 20

// LoadConfig reads and checks a configuration file. Relative paths in it are relative to its folder. The error names all
// faults, each with its line and key.
func LoadConfig(path string) (*Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.IsDir() || info.Size() > maxConfigBytes {
		return nil, fmt.Errorf("%s: a folder, or more than %d bytes; expected a configuration file", path, maxConfigBytes)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	c, err := ParseConfig(path, source)
	if err != nil {
		return nil, err
	}
	for _, p := range []*string{&c.SecretFile, &c.Log.Path, &c.Recorder.Dir} {
		if *p != "" && !filepath.IsAbs(*p) {
			*p = filepath.Join(filepath.Dir(path), *p)
		}
	}
	return c, nil
}

// ParseConfig checks a configuration; name stands in messages.
func ParseConfig(name string, source []byte) (*Config, error) {
	r := configReader{name: name, lines: strings.Split(string(source), "\n")}
	var doc yaml.Node
	if err := yaml.Load(source, &doc); err != nil {
		return nil, r.syntax(err)
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s: expected a mapping of keys such as listen, replicas and policy at the top", name)
	}
	c := &Config{}
	r.mapping("", doc.Content[0], reflect.ValueOf(c).Elem())
	var policyProblems error
	c.Policy, policyProblems = scenarios.ParsePolicy(name, source, r.policy)
	if policyProblems == nil && len(r.problems) == 0 {
		r.check(c)
	}
	return c, errors.Join(append(r.problems, policyProblems)...)
}

// check is the conditions that hold between keys.
func (r *configReader) check(c *Config) {
	if len(c.Replicas) == 0 {
		r.at("replicas", "missing: list at least one engine")
	}
	seen := map[string]bool{}
	for i := range c.Replicas {
		p := &c.Replicas[i]
		key := fmt.Sprintf("replicas[%d]", i)
		if !plainName(p.Name) {
			r.at(key+".name", fmt.Sprintf("%q: expected 1 to 64 letters, digits, '.', '_' and '-'", p.Name))
		}
		if seen[p.Name] {
			r.at(key+".name", fmt.Sprintf("%s is the name of another replica too", p.Name))
		}
		seen[p.Name] = true
		if u, err := url.Parse(p.URL); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
			r.at(key+".url", "expected an address such as http://10.0.0.7:8000, without user, query and fragment")
		}
		if p.KVEvents.Endpoint != "" && c.Prompt.Basis != "tokens" {
			r.at(key+".kv_events.endpoint", "KV events can only be joined with token ids; set prompt.basis to tokens")
		}
		r.checkKVEvents(key+".kv_events", &p.KVEvents)
	}
	for _, x := range [][2]string{{"health.path", c.Health.Path}, {"signals.probe.path", c.Signals.Probe.Path}} {
		if x[1] != "" && !strings.HasPrefix(x[1], "/") {
			r.at(x[0], "expected a path that begins with /")
		}
	}
	if name := c.Policy.Retention.Name; name != "none" {
		r.at("policy.retention", fmt.Sprintf("%s pins content, which vLLM cannot; only none works in a gateway", name))
	}
	if c.Policy.Router.Name == "oracle" {
		r.at("policy.router", "oracle knows what only a simulator knows; choose another router")
	}
	if _, err := identity.NewRules(c.Identity.Header, c.Identity.order(), make([]byte, 16)); err != nil {
		r.at("identity", err.Error())
	}
	for _, x := range [][2]string{{"identity.class_header", c.Identity.Class}, {"identity.group_header", c.Identity.Group}} {
		if x[1] != "" && !identity.ValidHeader(x[1]) {
			r.at(x[0], fmt.Sprintf("%q is not the name of a header", x[1]))
		}
	}
}

func (r *configReader) checkKVEvents(key string, c *KVEventsConfig) {
	if c.Endpoint == "" && c.Replay != "" {
		r.at(key+".replay", "needs kv_events.endpoint")
	}
	for _, x := range [][2]string{{".endpoint", c.Endpoint}, {".replay", c.Replay}} {
		if x[1] != "" && !kvevents.ValidAddress(x[1]) {
			r.at(key+x[0], "expected tcp://host:port or ipc:///path")
		}
	}
}

// order is the rules to try, nil for all.
func (c *IdentityConfig) order() []string {
	if len(c.Order) == 0 {
		return nil
	}
	return c.Order
}

func plainName(s string) bool {
	return s != "" && len(s) <= 64 && !strings.ContainsFunc(s, func(c rune) bool {
		return !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-')
	})
}

// configReader fills a Config from YAML by its tags.
type configReader struct {
	name     string
	lines    []string
	policy   *yaml.Node
	places   map[string]*yaml.Node
	problems []error
}

func (r *configReader) syntax(err error) error {
	var all *yaml.LoadErrors
	var one *yaml.LoadError
	if errors.As(err, &all) && len(all.Errors) > 0 {
		one = all.Errors[0]
	}
	if one != nil || errors.As(err, &one) {
		return fmt.Errorf("%s:%d:%d: not YAML: %s", r.name, one.Mark.Line, max(one.Mark.Column, 1), strings.TrimPrefix(one.Message, "yaml: "))
	}
	return fmt.Errorf("%s: not YAML: %w", r.name, err)
}

// report adds a fault at a node.
func (r *configReader) report(n *yaml.Node, key, message string) {
	p := &scenarios.Problem{File: r.name, Key: key, Message: message}
	if n != nil {
		p.Line, p.Column = n.Line, n.Column
		if n.Line <= len(r.lines) {
			p.Excerpt = r.lines[n.Line-1]
		}
	}
	r.problems = append(r.problems, p)
}

// at adds a fault at a key, which may have its default.
func (r *configReader) at(key, message string) { r.report(r.places[key], key, message) }

func (r *configReader) mapping(path string, n *yaml.Node, to reflect.Value) {
	seen := map[string]bool{}
	for i := 0; n != nil && i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		key := joined(path, k.Value)
		index := slices.Index(keysOf(to.Type()), k.Value)
		switch {
		case index < 0:
			message := "unknown key"
			if near := nearest.Name(k.Value, keysOf(to.Type())); near != "" {
				message += "; did you mean " + near + "?"
			}
			r.report(k, key, message)
			continue
		case seen[k.Value]:
			r.report(k, key, "given twice")
			continue
		}
		seen[k.Value] = true
		if r.places == nil {
			r.places = map[string]*yaml.Node{}
		}
		r.places[key] = k
		if key == "policy" {
			r.policy = v
			continue
		}
		r.value(key, v, to.Type().Field(index), to.Field(index))
	}
	for i := range to.NumField() {
		f := to.Type().Field(i)
		key := f.Tag.Get("yaml")
		if seen[key] || joined(path, key) == "policy" {
			continue
		}
		switch f.Type.Kind() {
		case reflect.Struct:
			r.mapping(joined(path, key), nil, to.Field(i))
		case reflect.Slice:
		default:
			def, ok := f.Tag.Lookup("def")
			if !ok {
				r.report(n, joined(path, key), "missing: "+f.Tag.Get("doc"))
			} else if message := setScalar(to.Field(i), f, def); message != "" {
				panic("gateway: default of " + joined(path, key) + ": " + message)
			}
		}
	}
}

func (r *configReader) value(key string, v *yaml.Node, f reflect.StructField, to reflect.Value) {
	kind := f.Type.Kind()
	switch {
	case v.Kind == yaml.AliasNode:
		r.report(v, key, "aliases are not supported; write the value out")
	case kind == reflect.Struct && (v.Kind == yaml.MappingNode || v.Tag == "!!null"):
		r.mapping(key, v, to)
	case kind == reflect.Slice && v.Kind == yaml.SequenceNode:
		for i, e := range v.Content {
			item := reflect.New(f.Type.Elem()).Elem()
			at := fmt.Sprintf("%s[%d]", key, i)
			if item.Kind() == reflect.Struct && e.Kind == yaml.MappingNode {
				r.mapping(at, e, item)
			} else if item.Kind() == reflect.String && e.Kind == yaml.ScalarNode && e.Tag == "!!str" {
				item.SetString(e.Value)
			} else {
				r.report(e, at, "expected "+wanted(item.Kind(), reflect.StructField{}))
			}
			to.Set(reflect.Append(to, item))
		}
	case kind == reflect.Struct || kind == reflect.Slice || v.Kind != yaml.ScalarNode:
		r.report(v, key, "expected "+wanted(kind, f))
	case !tagFits(kind, v.Tag):
		r.report(v, key, fmt.Sprintf("expected %s, found %s", wanted(kind, f), v.Value))
	default:
		if message := setScalar(to, f, v.Value); message != "" {
			r.report(v, key, message)
		}
	}
}

func tagFits(kind reflect.Kind, tag string) bool {
	switch kind {
	case reflect.String:
		return tag == "!!str"
	case reflect.Bool:
		return tag == "!!bool"
	case reflect.Int64:
		return tag == "!!int"
	}
	return tag == "!!int" || tag == "!!float"
}

// setScalar reads text into a field and says what is wrong with it.
func setScalar(to reflect.Value, f reflect.StructField, text string) string {
	switch f.Type.Kind() {
	case reflect.String:
		if enum := f.Tag.Get("enum"); enum != "" && !slices.Contains(strings.Split(enum, ","), text) {
			return fmt.Sprintf("expected %s, found %q", wanted(reflect.String, f), text)
		}
		to.SetString(text)
		return ""
	case reflect.Bool:
		to.SetBool(text == "true")
		return ""
	}
	x, err := parseNumber(text)
	low, _ := parseNumber(f.Tag.Get("min"))
	high, _ := parseNumber(f.Tag.Get("max"))
	if err != nil || !(x >= low && x <= high) || f.Type.Kind() == reflect.Int64 && x != math.Trunc(x) {
		return fmt.Sprintf("expected %s, found %s", wanted(f.Type.Kind(), f), text)
	}
	if f.Type.Kind() == reflect.Int64 {
		to.SetInt(int64(x))
	} else {
		to.SetFloat(x)
	}
	return ""
}
