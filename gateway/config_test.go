package gateway

import (
	"reflect"
	"strings"
	"testing"
)

const smallConfig = `replicas:
  - {name: a, url: "http://127.0.0.1:8001"}
policy:
  gate: {name: session, high_watermark: 0.7}
  router: smetric
`

func TestConfigHasDefaults(t *testing.T) {
	c, err := ParseConfig("gateway.yaml", []byte(smallConfig))
	check(t, err)
	if c.Listen != "127.0.0.1:8080" || c.Signals.StaleAfterS != 5 || c.Limits.BodyBytes != 32<<20 || c.Replicas[0].Name != "a" || c.Retries.Reroutes != 1 || c.Health.Path != "/health" {
		t.Errorf("%+v", c)
	}
	if c.Policy.Gate.Name != "session" || c.Policy.Gate.Params["high_watermark"].Number != .7 || c.Policy.Router.Name != "smetric" {
		t.Errorf("policy %+v", c.Policy)
	}
}

func TestConfigProblemsHaveTheirPlace(t *testing.T) {
	for source, want := range map[string]string{
		"lisen: a\n" + smallConfig:                             "gateway.yaml:1:1: lisen: unknown key; did you mean listen?",
		smallConfig + "limits: {body_bytes: 3}\n":              "gateway.yaml:6:22: limits.body_bytes: expected an integer from 1024 to 1073741824 (bytes), found 3",
		smallConfig + "limits: {body_bytes: 2000.5}\n":         "limits.body_bytes: expected an integer",
		smallConfig + "drain_s: soon\n":                        "gateway.yaml:6:10: drain_s: expected a number from 0 to 86400 (s), found soon",
		smallConfig + "signals: {stale: zero}\n":               "expected one of hold-last, ignore, saturated, found \"zero\"",
		smallConfig + "prompt: [a]\n":                          "prompt: expected a mapping of keys",
		smallConfig + "identity: {order: [nobody]}\n":          "gateway.yaml:6:1: identity: session identity: no rule is called \"nobody\"",
		smallConfig + "identity: {header: X-Request-ID}\n":     "names a single request",
		smallConfig + "identity: {class_header: \"a b\"}\n":    "gateway.yaml:6:12: identity.class_header: \"a b\" is not the name of a header",
		smallConfig + "identity: {default_class: 8}\n":         "identity.default_class: expected an integer from 0 to 7",
		strings.Replace(smallConfig, "http://", "ftp://", 1):   "gateway.yaml:2:15: replicas[0].url: expected an address",
		strings.Replace(smallConfig, "name: a, ", "", 1):       "replicas[0].name: missing",
		strings.Replace(smallConfig, "smetric", "smetrics", 1): "gateway.yaml:5:3: policy.router.name: \"smetrics\" is unknown; did you mean smetric?",
		strings.Replace(smallConfig, "smetric", "oracle", 1):   "policy.router: oracle knows what only a simulator knows",
		smallConfig + "  retention: ttl\n":                     "policy.retention: ttl pins content",
		strings.Replace(smallConfig, "0.7", "70", 1):           "gateway.yaml:4:25: policy.gate.high_watermark: 70 is out of range",
		"prompt: {basis: tokens}\n" + strings.Replace(smallConfig, ":8001\"", ":8001\", kv_events: {endpoint: nonsense}", 1):                 "replicas[0].kv_events.endpoint: expected tcp://host:port",
		"prompt: {basis: tokens}\n" + strings.Replace(smallConfig, ":8001\"", ":8001\", kv_events: {replay: \"tcp://a:1\"}", 1):              "replicas[0].kv_events.replay: needs kv_events.endpoint",
		"prompt: {basis: tokens}\n" + strings.Replace(smallConfig, ":8001\"", ":8001\", kv_events: {endpoint: \"tcp://a:1\", replay: b}", 1): "replicas[0].kv_events.replay: expected tcp://host:port",
		smallConfig + "health: {path: health}\n":                 "gateway.yaml:6:10: health.path: expected a path that begins with /",
		smallConfig + "signals: {probe: {path: \"http://b\"}}\n": "signals.probe.path: expected a path that begins with /",
		"policy: {}\n":                         "replicas: missing",
		"listen: a\nlisten: b\n" + smallConfig: "listen",
		strings.Replace(smallConfig, "}\npolicy", "}\n  - {name: a, url: \"http://b\"}\npolicy", 1): "replicas[1].name: a is the name of another replica too",
		"": "no documents",
	} {
		_, err := ParseConfig("gateway.yaml", []byte(source))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nexpected %q, got\n%v", source, want, err)
		}
	}
}

// TestEveryKeyIsDeclared: each has documentation, and a default that is within its range.
func TestEveryKeyIsDeclared(t *testing.T) {
	var walk func(path string, of reflect.Type)
	walk = func(path string, of reflect.Type) {
		for i := range of.NumField() {
			f := of.Field(i)
			key := joined(path, f.Tag.Get("yaml"))
			if f.Tag.Get("yaml") == "" || f.Tag.Get("doc") == "" || !strings.HasSuffix(f.Tag.Get("doc"), ".") {
				t.Errorf("%s: no key or no documentation", key)
			}
			switch kind := f.Type.Kind(); {
			case key == "policy":
			case kind == reflect.Struct:
				walk(key, f.Type)
			case kind == reflect.Slice && f.Type.Elem().Kind() == reflect.Struct:
				walk(key+"[]", f.Type.Elem())
			case kind == reflect.Int64 || kind == reflect.Float64:
				if message := setScalar(reflect.New(f.Type).Elem(), f, f.Tag.Get("def")); message != "" {
					t.Errorf("%s: %s", key, message)
				}
			}
		}
	}
	walk("", reflect.TypeFor[Config]())
}

func FuzzConfig(f *testing.F) {
	f.Add(smallConfig)
	f.Add("replicas: [{}]\npolicy: [1]\nlimits: {a: {b: c}}\n")
	f.Add("replicas: 3\nidentity: {order: 4}\n")
	f.Fuzz(func(t *testing.T, source string) {
		if c, err := ParseConfig("x", []byte(source)); err == nil && len(c.Replicas) == 0 {
			t.Error("a configuration without replicas was taken")
		}
	})
}

// TestKeyThatIsMissing: without it the gateway would send its clients' own keys to the engine.
func TestKeyThatIsMissing(t *testing.T) {
	c, err := ParseConfig("gateway.yaml", []byte(strings.Replace(smallConfig, "name: a, ", "name: a, api_key_env: SLUICE_TEST_NO_SUCH_KEY, ", 1)))
	check(t, err)
	if _, err := New(c, Options{}); err == nil || !strings.Contains(err.Error(), "replica a: the environment variable SLUICE_TEST_NO_SUCH_KEY, which api_key_env names, is empty") {
		t.Errorf("%v", err)
	}
}
