package callbacks

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/mezzo-ml/mezzo/keras"
)

// repr prints a number as Python's repr: the fewest digits that read back to
// it, with an exponent below 1e-4 and from 1e16 on.
func repr(x float64) string {
	switch {
	case math.IsNaN(x):
		return "nan"
	case math.IsInf(x, 0):
		return strings.ToLower(strings.TrimPrefix(strconv.FormatFloat(x, 'g', -1, 64), "+"))
	}
	s := strconv.FormatFloat(x, 'e', -1, 64)
	_, exponent, _ := strings.Cut(s, "e")
	if e, _ := strconv.Atoi(exponent); e < -4 || e >= 16 {
		return s
	}
	s = strconv.FormatFloat(x, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// field is a replacement field of Python's str.format, as far as file names
// need it.
var field = regexp.MustCompile(`\{\{|\}\}|\{([^{}:!]*)(?::([^{}]*))?\}|[{}]`)

var spec = regexp.MustCompile(`^(0?)(\d{0,3})(?:\.(\d{1,3}))?([defg%]?)$`)

// format fills in a pattern such as "{epoch:02d}-{val_loss:.2f}". counts are
// whole numbers.
func format(pattern string, counts map[string]int, logs keras.Logs) (name string, err error) {
	fail := func(f string, args ...any) string {
		if err == nil {
			err = fmt.Errorf("file name %q: "+f, append([]any{pattern}, args...)...)
		}
		return ""
	}
	name = field.ReplaceAllStringFunc(pattern, func(s string) string {
		m := field.FindStringSubmatch(s)
		switch {
		case s == "{{" || s == "}}":
			return s[:1]
		case len(s) == 1:
			return fail("there is a single %q; want {name}, {name:format}, or %q for the character", s, s+s)
		}
		key, how := m[1], spec.FindStringSubmatch(m[2])
		n, whole := counts[key]
		if !whole && !logs.Has(key) {
			have := make([]string, 0, len(logs)+2)
			for _, k := range []string{"epoch", "batch"} {
				if _, ok := counts[k]; ok {
					have = append(have, k)
				}
			}
			for _, l := range logs {
				have = append(have, l.Name)
			}
			return fail("got {%s}, want one of %s", key, strings.Join(have, ", "))
		}
		if how == nil || whole && how[3] != "" && (how[4] == "" || how[4] == "d") || !whole && (how[4] == "d" || how[4] == "" && how[3] != "") {
			return fail("%s: got the format %q, want one such as 02d for counts and .4f for other numbers", key, m[2])
		}
		zero, width, precision, verb := how[1], how[2], how[3], how[4]
		var text string
		switch x := logs.Get(key); {
		case whole && (verb == "" || verb == "d"):
			text = strconv.Itoa(n)
		case whole:
			text = float(float64(n), precision, verb)
		default:
			text = float(x, precision, verb)
		}
		return pad(text, zero, width)
	})
	return name, err
}

// float prints a number by the precision and the letter of a format.
func float(x float64, precision, verb string) string {
	if verb == "" {
		return repr(x)
	}
	p := 6
	if precision != "" {
		p, _ = strconv.Atoi(precision)
	}
	suffix := ""
	if verb == "%" {
		verb, x, suffix = "f", 100*x, "%"
	}
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return repr(x) + suffix
	}
	return strconv.FormatFloat(x, verb[0], p, 64) + suffix
}

func pad(s, zero, width string) string {
	w, _ := strconv.Atoi(width)
	n := w - len(s)
	switch {
	case n <= 0:
		return s
	case zero == "":
		return strings.Repeat(" ", n) + s
	case s[0] == '-':
		return "-" + strings.Repeat("0", n) + s[1:]
	}
	return strings.Repeat("0", n) + s
}
