package results

import (
	"path/filepath"
	"regexp"
	"slices"
)

// runFiles is what the folder of a run can hold.
var runFiles = []string{SummaryFile, TurnsFile, SessionsFile, ReplicasFile, ScenarioFile, DecisionsFile}

// armPattern is what armFolder makes.
var armPattern = regexp.MustCompile(`^[0-9]{2,}-.*-seed[0-9]+$`)

// foreignFile is the first name, in order, below a results folder that no run or comparison writes, relative to the
// folder; "" when there is none. names is what the folder holds.
func foreignFile(fsys FS, dir string, names []string) (string, error) {
	if slices.Contains(names, CompareFile) {
		if name := firstOther(names, func(n string) bool { return n == CompareFile || n == "arms" }); name != "" || !slices.Contains(names, "arms") {
			return name, nil
		}
		arms, err := fsys.ReadDir(filepath.Join(dir, "arms"))
		if err != nil {
			return "", err
		}
		if name := firstOther(arms, armPattern.MatchString); name != "" {
			return filepath.Join("arms", name), nil
		}
		for _, arm := range arms {
			names, err := fsys.ReadDir(filepath.Join(dir, "arms", arm))
			if err != nil {
				return "", err
			}
			if name := firstOther(names, isRunFile); name != "" {
				return filepath.Join("arms", arm, name), nil
			}
		}
		return "", nil
	}
	return firstOther(names, isRunFile), nil
}

func isRunFile(name string) bool { return slices.Contains(runFiles, name) }

// firstOther is the least name that is not known, "" when all are.
func firstOther(names []string, known func(string) bool) string {
	other := ""
	for _, name := range names {
		if !known(name) && (other == "" || name < other) {
			other = name
		}
	}
	return other
}
