package results

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// CompareFile is the file that makes a folder a comparison.
const CompareFile = "compare.json"

// Comparison is compare.json: arms that ran the same trace with the same draws, each once per seed.
type Comparison struct {
	SchemaVersion int    `json:"schema_version"`
	Version       string `json:"version"`
	// ScenarioDigest is of the scenario with all that is varied.
	ScenarioDigest string   `json:"scenario_digest"`
	TraceDigest    string   `json:"trace_digest"`
	Varied         []Axis   `json:"varied"`
	Seeds          []uint64 `json:"seeds"`
	Arms           []Arm    `json:"arms"`

	dir    string
	single bool // a run's own folder
}

// Axis is a varied knob and the values it took, in the order of the arms.
type Axis struct {
	Path   string   `json:"path"`
	Values []string `json:"values"`
}

// Arm is one column of a comparison: the runs of one setting of the knobs, one per seed.
type Arm struct {
	Name     string     `json:"name"`
	Settings []Setting  `json:"settings"`
	Runs     []*Summary `json:"runs"`
}

// Setting is the arm's value of a varied knob.
func (a *Arm) Setting(path string) (string, bool) {
	for _, s := range a.Settings {
		if s.Path == path {
			return s.Value, true
		}
	}
	return "", false
}

// NewComparison groups runs by arm, in the order in which arms first appear.
func NewComparison(runs []*Summary) *Comparison {
	c := &Comparison{SchemaVersion: SchemaVersion, Varied: []Axis{}, Seeds: []uint64{}, Arms: []Arm{}}
	for _, s := range runs {
		i := slices.IndexFunc(c.Arms, func(a Arm) bool { return a.Name == s.Arm })
		if i < 0 {
			i = len(c.Arms)
			c.Arms = append(c.Arms, Arm{Name: s.Arm, Settings: notNil(s.Varied)})
			c.addSettings(s.Varied)
		}
		c.Arms[i].Runs = append(c.Arms[i].Runs, s)
		if !slices.Contains(c.Seeds, s.Seed) {
			c.Seeds = append(c.Seeds, s.Seed)
		}
	}
	if len(runs) > 0 {
		c.Version, c.ScenarioDigest, c.TraceDigest = runs[0].Version, runs[0].ScenarioDigest, runs[0].TraceDigest
	}
	return c
}

func (c *Comparison) addSettings(settings []Setting) {
	for _, s := range settings {
		i := slices.IndexFunc(c.Varied, func(a Axis) bool { return a.Path == s.Path })
		if i < 0 {
			i = len(c.Varied)
			c.Varied = append(c.Varied, Axis{Path: s.Path})
		}
		if !slices.Contains(c.Varied[i].Values, s.Value) {
			c.Varied[i].Values = append(c.Varied[i].Values, s.Value)
		}
	}
}

// Run opens the folder of one run of an arm.
func (c *Comparison) Run(arm, run int) (*Run, error) {
	s := c.Arms[arm].Runs[run]
	if c.dir == "" {
		return nil, errors.New("the comparison is not on disk")
	}
	if c.single {
		return &Run{c.dir, s}, nil
	}
	return &Run{filepath.Join(c.dir, armFolder(arm, s.Arm, s.Seed)), s}, nil
}

// armFolder is the name of a run's folder within a comparison, such as arms/02-sticky-seed1.
func armFolder(index int, arm string, seed uint64) string {
	name := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '_', r == '=':
			return r
		}
		return '-'
	}, arm)
	if len(name) > 80 {
		name = name[:80]
	}
	return filepath.Join("arms", fmt.Sprintf("%02d-%s-seed%d", index+1, name, seed))
}

// CompareWriter writes the folder of a comparison. Arms may be written from several goroutines.
type CompareWriter struct {
	stage  *stage
	digest string
}

// CreateCompare starts the folder of a comparison; scenarioDigest covers the scenario and all that is varied.
func CreateCompare(dir, scenarioDigest string, opts Options) (*CompareWriter, error) {
	s, err := newStage(dir, opts)
	if err != nil {
		return nil, err
	}
	if err := s.fs.Mkdir(filepath.Join(s.temp, "arms")); err != nil {
		s.abort()
		return nil, fmt.Errorf("result folder %s: %w", s.target, err)
	}
	return &CompareWriter{s, scenarioDigest}, nil
}

// Run starts the folder of one run of the arm with this index, from 0. Its Finish completes the files; the comparison
// as a whole gets its name by CompareWriter.Finish.
func (c *CompareWriter) Run(arm int, info Info) (*Writer, error) {
	dir := filepath.Join(c.stage.temp, armFolder(arm, info.Arm, info.Seed))
	if err := c.stage.fs.Mkdir(dir); err != nil {
		return nil, fmt.Errorf("result folder %s: %w", c.stage.target, err)
	}
	w, err := newWriter(c.stage.fs, dir, info)
	if err != nil {
		return nil, fmt.Errorf("result folder %s: %w", c.stage.target, err)
	}
	return w, nil
}

// Finish writes compare.json for the finished runs, ordered by arm and seed, and gives the folder its name. On error
// nothing is left behind.
func (c *CompareWriter) Finish(runs []*Summary) (*Comparison, error) {
	comparison := NewComparison(runs)
	comparison.ScenarioDigest = c.digest
	err := writeJSON(c.stage.fs, filepath.Join(c.stage.temp, CompareFile), comparison)
	if err == nil {
		err = c.stage.fs.SyncDir(filepath.Join(c.stage.temp, "arms"))
	}
	if err != nil {
		c.stage.abort()
		return nil, fmt.Errorf("result folder %s: %w", c.stage.target, err)
	}
	if err := c.stage.commit(); err != nil {
		return nil, err
	}
	comparison.dir = c.stage.target
	return comparison, nil
}

// Abort removes the folder, after every Writer of an arm has ended. It does nothing after Finish.
func (c *CompareWriter) Abort() { c.stage.abort() }
