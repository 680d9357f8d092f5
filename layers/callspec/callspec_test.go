package callspec

import (
	"reflect"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Spec{
		"relu":      {Name: "relu"},
		" relu ( )": {Name: "relu"},
		"random_normal(stddev=0.02, seed=7)": {Name: "random_normal",
			Args: []Arg{{"stddev", 0.02}, {"seed", int64(7)}}},
		"GlorotUniform":            {Name: "glorot_uniform"},
		"MinMaxNorm(-1, 1e3)":      {Name: "min_max_norm", Args: []Arg{{"", int64(-1)}, {"", 1e3}}},
		"L1L2(l1=.5)":              {Name: "l1l2", Args: []Arg{{"l1", .5}}},
		"f(True,False,true,false)": {Name: "f", Args: []Arg{{"", true}, {"", false}, {"", true}, {"", false}}},
		"f(None, a='b c', d=\"e'\", g=rows,)": {Name: "f",
			Args: []Arg{{"", nil}, {"a", "b c"}, {"d", "e'"}, {"g", "rows"}}},
		"max_norm(axis=[0, 1, 2])": {Name: "max_norm", Args: []Arg{{"axis", []any{int64(0), int64(1), int64(2)}}}},
		"f((0,), [])":              {Name: "f", Args: []Arg{{"", []any{int64(0)}}, {"", []any{}}}},
	} {
		got, err := Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("Parse(%q): got %#v, %v, want %#v", text, got, err, want)
		}
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                `"" cannot be read: got its end, want a name`,
		"2x":              `"2x" cannot be read: got "2x" at byte 0, want a name`,
		"relu(":           `"relu(" cannot be read: got its end, want a value`,
		"relu)":           `"relu)" cannot be read: got ")" at byte 4, want its end`,
		"relu(a=)":        `"relu(a=)" cannot be read: got ")" at byte 7, want a value`,
		"relu(1 2)":       `"relu(1 2)" cannot be read: got "2)" at byte 7, want "," or ")"`,
		"relu(1)(2)":      `"relu(1)(2)" cannot be read: got "(2)" at byte 7, want its end`,
		"f('x)":           `"f('x)" cannot be read: got its end, want a closing '`,
		"f(1e999)":        `"f(1e999)" cannot be read: got "1e999)" at byte 2, want a finite number, a bool, None, a string or a list`,
		"f(a=1, a=2)":     `"f(a=1, a=2)" cannot be read: argument a is given twice`,
		"f(a=1, 2)":       `"f(a=1, 2)" cannot be read: positional argument 2 follows a named one`,
		"f([[1]])":        `"f([[1]])" cannot be read: got "[1]])" at byte 3, want a value`,
		"f([1 2])":        `"f([1 2])" cannot be read: got "2])" at byte 5, want "," or "]"`,
		"f(,)":            `"f(,)" cannot be read: got ",)" at byte 2, want a value`,
		"f(stddev=-0.1.2": `"f(stddev=-0.1.2" cannot be read: got "-0.1.2" at byte 9, want a finite number, a bool, None, a string or a list`,
	} {
		_, err := Parse(text)
		if err == nil || err.Error() != want {
			t.Errorf("Parse(%q): got error %v, want %s", text, err, want)
		}
	}
}

func TestBind(t *testing.T) {
	type values struct {
		F    float64
		OptF *float64
		I    int
		Seed *int64
		B    bool
		S    string
		Axes []int
	}
	bind := func(text string) (values, error) {
		v := values{F: 1, I: 2, S: "x", Axes: []int{3}}
		s, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		err = s.Bind(Required("f", &v.F), Optional("optf", &v.OptF), Optional("i", &v.I), Optional("seed", &v.Seed),
			Optional("b", &v.B), Optional("s", &v.S), Optional("axes", &v.Axes))
		return v, err
	}
	half, seven := 0.5, int64(7)
	for text, want := range map[string]values{
		"c(4)":                        {F: 4, I: 2, S: "x", Axes: []int{3}},
		"c(4, 0.5, 9, 7, True, y, 6)": {F: 4, OptF: &half, I: 9, Seed: &seven, B: true, S: "y", Axes: []int{6}},
		"c(f=0.5, optf=None, seed=None, axes=[0, -1])": {F: .5, I: 2, S: "x", Axes: []int{0, -1}},
		"c(1, axes=None)": {F: 1, I: 2, S: "x"},
	} {
		got, err := bind(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", text, got, err, want)
		}
	}
	const have = "have f, optf, i, seed, b, s, axes"
	for text, want := range map[string]string{
		"c":                            "argument f of c is missing; " + have,
		"c(1, g=2)":                    `unknown argument "g" of c; ` + have,
		"c(1, f=2)":                    "argument f of c is given twice",
		"c(1, 2, 3, 4, b, s, 0, 8)":    "argument b of c: got \"b\", want True or False",
		"c(1, 2, 3, 4, true, s, 0, 8)": "too many arguments of c: got 8; " + have,
		"c(None)":                      "argument f of c: got None, want a number",
		"c(1, optf=True)":              "argument optf of c: got True, want a number or None",
		"c(1, i=1.5)":                  "argument i of c: got 1.5, want an integer",
		"c(1, seed=abc)":               `argument seed of c: got "abc", want an integer or None`,
		"c(1, s=2)":                    "argument s of c: got 2, want a string",
		"c(1, axes=[0, 0.5])":          "argument axes of c: got [0, 0.5], want an integer or a list of integers",
	} {
		_, err := bind(text)
		if err == nil || err.Error() != want {
			t.Errorf("%s: got error %v, want %s", text, err, want)
		}
	}
}

func TestTable(t *testing.T) {
	table := Table[int]{Kind: "number", Make: map[string]func(Spec) (int, error){
		"two": func(s Spec) (int, error) { return 2, s.Bind() },
		"one": func(s Spec) (int, error) { return 1, s.Bind() },
	}}
	if got, err := table.Get("Two"); got != 2 || err != nil {
		t.Errorf("Two: got %d, %v, want 2", got, err)
	}
	for text, want := range map[string]string{
		"three":    `unknown number "three"; have one, two`,
		"two(x=1)": `unknown argument "x" of two; it takes none`,
		"two(1)":   "too many arguments of two: got 1; it takes none",
		"two(":     `number "two(" cannot be read: got its end, want a value`,
	} {
		if got, err := table.Get(text); got != 0 || err == nil || err.Error() != want {
			t.Errorf("%s: got %d, error %v, want %s", text, got, err, want)
		}
	}
}

func TestBindToUnknownKind(t *testing.T) {
	defer func() {
		if r, _ := recover().(string); !strings.Contains(r, "*uint8") {
			t.Errorf("got panic %q, want one that names *uint8", r)
		}
	}()
	_ = Spec{Args: []Arg{{"a", int64(1)}}}.Bind(Optional("a", new(uint8)))
}

// FuzzParse: nothing panics, and String gives back what was parsed.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"relu", "f(a=1, b=[2, .5], c='x')", "F(-0.0,1e30,None,True,\"'\",)", "f(((", "f(a==1)", "é(1)", "f(0x1p-3,00,-0)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err != nil {
			return
		}
		again, err := Parse(s.String())
		if err != nil || !reflect.DeepEqual(s, again) {
			t.Errorf("%q: got %#v and, from its String %q, %#v, %v; want the same", text, s, s.String(), again, err)
		}
	})
}
