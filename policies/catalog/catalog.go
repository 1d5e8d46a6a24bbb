// Package catalog is the table of the policies that there are. A new policy is one file and one line here.
package catalog

import (
	"errors"
	"strconv"

	"github.com/sluice-sim/sluice/policies"
	"github.com/sluice-sim/sluice/policies/admission"
	"github.com/sluice-sim/sluice/policies/retention"
	"github.com/sluice-sim/sluice/policies/routing"
)

// Gates lists the gates, in the order of the documentation.
func Gates() []policies.Declaration {
	return []policies.Declaration{
		admission.None(),
		admission.MaxSessions(),
		admission.MaxRequests(),
		admission.AIMDKV(),
		admission.LLMDSaturation(),
		admission.Concur(),
		admission.ThunderAgent(),
		admission.DynamoSessionAware(),
		admission.Session(),
	}
}

// Routers lists the routers, in the order of the documentation.
func Routers() []policies.Declaration {
	return []policies.Declaration{
		routing.RoundRobin(),
		routing.Random(),
		routing.PowerOfTwo(),
		routing.LeastRequests(),
		routing.LeastPendingTokens(),
		routing.LeastWork(),
		routing.CHWBL(),
		routing.Sticky(),
		routing.StickyBounded(),
		routing.StickyLeastLoaded(),
		routing.VLLMDP(),
		routing.LLMD(),
		routing.AIBrixPrefixCache(),
		routing.SMGCacheAware(),
		routing.Dynamo(),
		routing.Preble(),
		routing.LMetric(),
		routing.Bailian(),
		routing.SMetric(),
		routing.SMetricFigure(),
		routing.Oracle(),
	}
}

// Retentions lists the retention policies, in the order of the documentation.
func Retentions() []policies.Declaration {
	return []policies.Declaration{
		retention.None(),
		retention.TTL(),
		retention.Continuum(),
		retention.Belady(),
	}
}

// FindRetention is the declaration of the retention policy called name; the error of an unknown name suggests the nearest
// one.
func FindRetention(name string) (policies.Declaration, error) {
	return find("retention policy", Retentions(), name)
}

// FindGate is the declaration of the gate called name; the error of an unknown name suggests the nearest one.
func FindGate(name string) (policies.Declaration, error) { return find("gate", Gates(), name) }

// FindRouter is the declaration of the router called name; the error of an unknown name suggests the nearest one.
func FindRouter(name string) (policies.Declaration, error) { return find("router", Routers(), name) }

func find(kind string, all []policies.Declaration, name string) (policies.Declaration, error) {
	names := make([]string, 0, len(all))
	for _, d := range all {
		if d.Name == name {
			return d, nil
		}
		names = append(names, d.Name)
	}
	return policies.Declaration{}, errors.New("no " + kind + " " + strconv.Quote(name) + policies.Suggestion(name, names))
}

// BuildGate makes the gate called name. Knobs that p leaves out take their defaults; an unknown knob or a value out of
// range is an error.
func BuildGate(name string, e policies.Env, p policies.Params) (policies.Gate, error) {
	d, err := FindGate(name)
	if err != nil {
		return nil, err
	}
	if err := d.Check(p); err != nil {
		return nil, err
	}
	return d.NewGate(e, d.Resolve(p)), nil
}

// BuildRouter makes the router called name, as BuildGate does a gate.
func BuildRouter(name string, e policies.Env, p policies.Params) (policies.Router, error) {
	d, err := FindRouter(name)
	if err != nil {
		return nil, err
	}
	if err := d.Check(p); err != nil {
		return nil, err
	}
	return d.NewRouter(e, d.Resolve(p)), nil
}
