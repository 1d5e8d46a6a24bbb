package latency

import (
	_ "embed"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
)

// Calibration corrects the law for one deployment. The zero value changes
// nothing. For the three factors, where zero would have no meaning, 0 means 1.
type Calibration struct {
	C0         float64 `json:"c0"`    // seconds per step
	CSeq       float64 `json:"cseq"`  // seconds per step and sequence
	KDec       float64 `json:"kdec"`  // factor on the decode part
	KPf        float64 `json:"kpf"`   // factor on what prefill adds to it
	APISeconds float64 `json:"api_s"` // seconds added to the time to first token only

	// AllReduceRate is a factor on the card's all-reduce bandwidth: 0.4 for a
	// link 2.5 times slower than the one the card was fitted on.
	AllReduceRate float64 `json:"allreduce_rate"`
}

func (c Calibration) resolve() (Calibration, error) {
	for _, f := range []struct {
		key       string
		value     *float64
		low, high float64
		factor    bool
	}{
		{"c0", &c.C0, 0, 1, false},
		{"cseq", &c.CSeq, 0, 0.1, false},
		{"kdec", &c.KDec, 0.01, 100, true},
		{"kpf", &c.KPf, 0.01, 100, true},
		{"api_s", &c.APISeconds, 0, 60, false},
		{"allreduce_rate", &c.AllReduceRate, 0.001, 1000, true},
	} {
		if f.factor && *f.value == 0 {
			*f.value = 1
		}
		if !(*f.value >= f.low && *f.value <= f.high) {
			return c, fmt.Errorf("calibration %s = %v: want %v to %v", f.key, *f.value, f.low, f.high)
		}
	}
	return c, nil
}

//go:embed cards/calibrations.json
var calibrationsJSON []byte

type calibrationRow struct {
	Model       string      `json:"model"`
	GPU         string      `json:"gpu"`
	Precision   string      `json:"precision"`
	Calibration Calibration `json:"calibration"`
	Validation  struct {
		N    int     `json:"n"`         // measured points that were not used in the fit
		TPOT float64 `json:"tpot_mape"` // percent
		TTFT float64 `json:"ttft_mape"` // percent
	} `json:"validation"`
}

func (r *calibrationRow) name() string { return r.Model + "/" + r.GPU + "/" + r.Precision }

var calibrations = func() []calibrationRow {
	var file struct {
		Note string           `json:"note"`
		Rows []calibrationRow `json:"rows"`
	}
	if err := json.Unmarshal(calibrationsJSON, &file, json.RejectUnknownMembers(true)); err != nil {
		panic("latency: embedded calibrations: " + err.Error())
	}
	slices.SortFunc(file.Rows, func(a, b calibrationRow) int { return strings.Compare(a.name(), b.name()) })
	return file.Rows
}()

// Calibrations returns the names of the embedded calibrations, in order:
// model/gpu/precision.
func Calibrations() []string {
	names := make([]string, len(calibrations))
	for i := range calibrations {
		names[i] = calibrations[i].name()
	}
	return names
}

// FindCalibration returns an embedded calibration by name. "none" and "" give
// the zero value. Model and GPU may be written with any of their aliases.
func FindCalibration(name string) (Calibration, error) {
	if name == "" || name == "none" {
		return Calibration{}, nil
	}
	wanted := name
	if parts := strings.Split(name, "/"); len(parts) == 3 {
		if m, err := FindModel(parts[0]); err == nil {
			parts[0] = m.Name
		}
		if g, err := FindGPU(parts[1]); err == nil {
			parts[1] = g.Name
		}
		wanted = strings.ToLower(strings.Join(parts, "/"))
	}
	for i := range calibrations {
		if calibrations[i].name() == wanted {
			return calibrations[i].Calibration, nil
		}
	}
	return Calibration{}, fmt.Errorf("unknown calibration %q: want none or one of %s", name, strings.Join(Calibrations(), ", "))
}
