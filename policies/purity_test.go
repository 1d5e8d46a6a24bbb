package policies_test

import (
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/sluice-sim/sluice"

// forbiddenImports are packages that no package of the core may reach, however indirectly: whatever has a clock, a
// goroutine, I/O, hidden randomness or the simulator in it.
var forbiddenImports = []string{
	"context", "crypto/rand", "fmt", "hash/maphash", "io", "log", "log/slog", "math/rand", "math/rand/v2", "net", "net/http", "os", "reflect", "sync",
	"sync/atomic", "syscall", "time",
	module + "/gateway", module + "/model", module + "/sim",
}

// mathAllowed are the functions of math whose result is the same on every machine.
var mathAllowed = []string{
	"Abs", "Ceil", "Copysign", "Float32bits", "Float64bits", "Float64frombits", "Floor", "Inf", "IsInf", "IsNaN", "Max", "Min", "Mod", "NaN", "Round",
	"Signbit", "Sqrt", "Trunc",
}

func TestCoreReachesNothingImpure(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", "./...").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	deps := strings.Fields(string(out))
	if !slices.Contains(deps, module+"/policies/routing") || !slices.Contains(deps, module+"/prefix") {
		t.Fatalf("go list did not find the core among %d packages", len(deps))
	}
	for _, d := range deps {
		for _, f := range forbiddenImports {
			if d == f || strings.HasPrefix(f, module) && strings.HasPrefix(d, f+"/") {
				t.Errorf("the core reaches %s", d)
			}
		}
	}
}

func TestCoreSyntaxIsPure(t *testing.T) {
	fset := token.NewFileSet()
	imp := importer.ForCompiler(fset, "source", nil)
	files := 0
	for _, dir := range []string{".", "admission", "catalog", "routing"} {
		names, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var parsed []*ast.File
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, name, nil, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			parsed = append(parsed, f)
		}
		if len(parsed) == 0 {
			t.Errorf("no file in %s", dir)
		}
		files += len(parsed)
		for _, fault := range impurities(fset, imp, module+"/policies/"+dir, parsed) {
			t.Error(fault)
		}
	}
	if files < 20 {
		t.Errorf("scanned %d files only", files)
	}
}

// impurities lists what breaks determinism in a package: goroutines, channels' choices, map order, functions of math that
// differ between machines, and products that a compiler may fuse into a sum.
func impurities(fset *token.FileSet, imp types.Importer, path string, files []*ast.File) []string {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: imp}
	if _, err := conf.Check(path, fset, files, info); err != nil {
		return []string{err.Error()}
	}
	c := checker{fset: fset, info: info}
	for _, f := range files {
		ast.Inspect(f, c.visit)
	}
	return c.faults
}

type checker struct {
	fset   *token.FileSet
	info   *types.Info
	faults []string
}

func (c *checker) fault(n ast.Node, what string) {
	c.faults = append(c.faults, fmt.Sprintf("%s: %s", c.fset.Position(n.Pos()), what))
}

func (c *checker) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GoStmt:
		c.fault(n, "go statement")
	case *ast.SelectStmt:
		c.fault(n, "select")
	case *ast.RangeStmt:
		if _, ok := c.info.TypeOf(n.X).Underlying().(*types.Map); ok {
			c.fault(n, "range over a map")
		}
	case *ast.SelectorExpr:
		if o := c.info.Uses[n.Sel]; o != nil && o.Pkg() != nil && o.Pkg().Path() == "math" {
			if _, isFunc := o.(*types.Func); isFunc && !slices.Contains(mathAllowed, o.Name()) {
				c.fault(n, "math."+o.Name()+" differs between machines")
			}
		}
	case *ast.BinaryExpr:
		if n.Op == token.ADD || n.Op == token.SUB {
			c.product(n.X)
			c.product(n.Y)
		}
	case *ast.AssignStmt:
		if n.Tok == token.ADD_ASSIGN || n.Tok == token.SUB_ASSIGN {
			c.product(n.Rhs[0])
		}
		for _, x := range n.Rhs {
			if n.Tok == token.ASSIGN || n.Tok == token.DEFINE {
				c.product(x) // the compiler may carry it into a later sum
			}
		}
	}
	return true
}

// product reports x if it is a product of floats that is not a constant and not wrapped in a conversion.
func (c *checker) product(x ast.Expr) {
	b, ok := ast.Unparen(x).(*ast.BinaryExpr)
	if !ok || b.Op != token.MUL || c.info.Types[b].Value != nil {
		return
	}
	if t, ok := c.info.TypeOf(b).Underlying().(*types.Basic); ok && t.Info()&types.IsFloat != 0 {
		c.fault(b, "product that may be fused; wrap it in float64()")
	}
}

func TestPurityCheckerFindsFaults(t *testing.T) {
	const bad = `package bad
import "math"
func f(m map[int]int, a, b, c float64, i, j int) float64 {
	go func() {}()
	select {}
	for range m { }
	x := a*b
	x += a*b
	_ = i*j + i
	_ = float64(a*b) + c + 2.0*3.0
	return math.Exp(a) + math.Sqrt(b) + (a*b) + x
}`
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "bad.go", bad, 0)
	if err != nil {
		t.Fatal(err)
	}
	var lines []int
	for _, fault := range impurities(fset, importer.ForCompiler(fset, "source", nil), "bad", []*ast.File{f}) {
		var line int
		fmt.Sscanf(fault, "bad.go:%d:", &line)
		lines = append(lines, line)
	}
	slices.Sort(lines)
	if want := []int{4, 5, 6, 7, 8, 11, 11}; !slices.Equal(lines, want) {
		t.Errorf("faults on lines %v, want %v", lines, want)
	}
}
