package doctor_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/mezzo-ml/mezzo/backend/dtype"
	"github.com/mezzo-ml/mezzo/backend/op"
	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/policy"
)

// htmlOf writes a report as HTML, which must be well-formed XML as well, and refer to
// nothing elsewhere.
func htmlOf(t *testing.T, r *doctor.Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.WriteHTML(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(bytes.NewReader(b.Bytes()))
	elements := 0
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := token.(xml.StartElement); ok {
			elements++
			switch e.Name.Local {
			case "script", "link", "img", "iframe", "object", "a":
				t.Errorf("the report has an element %s", e.Name.Local)
			}
		}
	}
	if elements < 20 {
		t.Errorf("got %d elements, want 20 or more", elements)
	}
	html := b.String()
	if i := strings.Index(strings.Replace(html, "http://www.w3.org/1999/xhtml", "", 1), "://"); i >= 0 {
		t.Errorf("the report has a URL: %s", html[max(i-20, 0):i+20])
	}
	for _, bad := range []string{"NaN\"", "url(", "@import", "ZgotmplZ", "+Inf", "%!"} {
		if strings.Contains(html, bad) {
			t.Errorf("the report has %q", bad)
		}
	}
	return html
}

var sectionID = regexp.MustCompile(`<section[^>]* id="([a-z-]+)"`)

// TestReportHTML: every section that has something to say is there.
func TestReportHTML(t *testing.T) {
	for name, want := range map[string]string{
		"07":  "remedy waterfall exponents loss-scale suspects graph values",
		"12":  "remedy waterfall exponents loss-scale graph values",
		"16":  "remedy waterfall exponents suspects graph values",
		"10b": "remedy waterfall exponents loss-scale graph values",
		"13":  "remedy waterfall exponents loss-scale graph values",
		"00":  "waterfall exponents loss-scale values",
	} {
		html := htmlOf(t, reportOf(t, name))
		var got []string
		for _, m := range sectionID.FindAllStringSubmatch(html, -1) {
			got = append(got, m[1])
		}
		if got := strings.Join(got, " "); got != want {
			t.Errorf("%s: got the sections %s, want %s", name, got, want)
		}
		if name != "07" {
			continue
		}
		for _, want := range []string{
			`policy.Map{&#34;own_norm&#34;: &#34;float32&#34;}`, "Layer own_norm: Square in float16 overflows", "first seen at own_norm/Square#0",
			">forward</text>", ">backward</text>", ">update</text>", "∞</text>", ">subnormal</text>", ">now 32768</text>", "prefers-color-scheme: dark", `class="node bad focus"`,
		} {
			if !strings.Contains(html, want) {
				t.Errorf("%q is missing", want)
			}
		}
	}
}

// drawn is a step of n values in layers of 20, with names of that prefix.
func drawn(n int, prefix string) *doctor.Report {
	r := &doctor.Report{Kind: doctor.Overflow, Summary: prefix, Taps: &tensor.Taps{}, Before: doctor.Verdict{Loss: math.NaN(), Gradient: math.Inf(1), Worst: prefix}, Tolerance: 0.01}
	for i := range n {
		path := fmt.Sprintf("%s%d", prefix, i/20)
		if i > n/2 {
			path = fmt.Sprintf("%s%d/grad", prefix, (n-i)/20)
		}
		s := &op.Statistics{Count: 1000, Finite: 1000, SquaredError: float64(i%7) * 1e-9, Coarse: i%20 == 3}
		s.Y.Squares, s.Y.Largest, s.Y.Smallest = 1, 8, 1e-6
		for b := range 30 {
			s.Y.Bins[100+(b*(i%11+1))%50] = int64(i%13 + b)
		}
		if i > n/3 && i%5 == 0 {
			s.X.Infinities = 7
		}
		t := tensor.Tap{ID: tensor.TapID(fmt.Sprintf("%s/MatMul#%d", path, i)), Path: path, Op: op.MatMul, Type: op.Type{DType: dtype.Float16, Shape: op.Shape{10, 100}}, Shadow: s, Local: s, Argument: -1}
		for k := max(0, i-9); k < i; k++ {
			t.Args = append(t.Args, k)
		}
		r.Taps.Values = append(r.Taps.Values, t)
	}
	r.Origin = &r.Taps.Values[n/3]
	for i := range n / 20 {
		r.Suspects = append(r.Suspects, doctor.Suspect{Layer: fmt.Sprintf("%s%d", prefix, i), Why: prefix})
		r.Noise = append(r.Noise, prefix)
	}
	r.Remedy.Map = policy.Map{prefix: policy.Float32}
	return r
}

// TestReportHTMLSize: 20,000 values in 1,000 layers take no more than a few hundred
// kilobytes, and names of any length do not change that.
func TestReportHTMLSize(t *testing.T) {
	for _, prefix := range []string{"encoder/layer_", strings.Repeat("long_name/", 100)} {
		html := htmlOf(t, drawn(20000, prefix))
		t.Logf("%d bytes", len(html))
		if most := 1 << 19; len(html) > most {
			t.Errorf("got %d bytes, want at most %d", len(html), most)
		}
	}
}

// TestReportHTMLEscapes: names are texts of the user's.
func TestReportHTMLEscapes(t *testing.T) {
	for _, name := range []string{"<script>", `"><script>alert(1)</script>`, "</title></svg><img src=x>", "]]>&<!--", "{{.Kind}}", "\x00\xff"} {
		html := htmlOf(t, drawn(60, name))
		for _, bad := range []string{"<script", "<img", "<!--"} {
			if strings.Contains(html, bad) {
				t.Errorf("%q: the report has %q", name, bad)
			}
		}
	}
	html := htmlOf(t, &doctor.Report{})
	if strings.Contains(html, "<svg") {
		t.Error("a report without values has drawings")
	}
}
