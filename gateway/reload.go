package gateway

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/sluice-sim/sluice/scenarios"
)

// Reload takes over the knobs of next. A configuration that differs in anything else is refused as a whole, with the
// reason.
func (g *Gateway) Reload(next *Config) error {
	if keys := differences(g.cfg, next); len(keys) > 0 {
		return fmt.Errorf("%s: only knobs of the policies may change while the gateway runs; everything else needs a new start", strings.Join(keys, ", "))
	}
	if err := g.driver.Reknob(next.Policy); err != nil {
		return err
	}
	core := CoreConfig{Policy: next.Policy}
	signals, err := core.signals()
	if err == nil {
		g.signals.Store(uint32(signals))
	}
	return err
}

// differences is the keys at the top in which two configurations differ, but for the policy.
func differences(a, b *Config) (keys []string) {
	x, y := reflect.ValueOf(*a), reflect.ValueOf(*b)
	for i := range x.NumField() {
		f := x.Type().Field(i)
		if f.Type != reflect.TypeFor[scenarios.Policy]() && !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			keys = append(keys, f.Tag.Get("yaml"))
		}
	}
	return keys
}

// WatchConfig reads the configuration at path again whenever hangup says so or the file has changed, until ctx ends.
func (g *Gateway) WatchConfig(ctx context.Context, path string, hangup <-chan os.Signal) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	seen := stampOf(path)
	for {
		select {
		case <-ctx.Done():
			return
		case <-hangup:
		case <-tick.C:
			now := stampOf(path)
			if now == seen {
				continue
			}
			seen = now
		}
		g.reloadFrom(path)
	}
}

// stamp is by what a file's change is known.
type stamp struct {
	at   time.Time
	size int64
}

func stampOf(path string) stamp {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}
	}
	return stamp{info.ModTime(), info.Size()}
}

func (g *Gateway) reloadFrom(path string) {
	next, err := LoadConfig(path)
	if err == nil {
		err = g.Reload(next)
	}
	if err != nil {
		g.metrics.reloads.WithLabelValues("refused").Inc()
		g.log.Error("the configuration was not taken over", "error", err)
		return
	}
	g.metrics.reloads.WithLabelValues("taken").Inc()
	g.log.Info("knobs taken over", "file", path)
}
