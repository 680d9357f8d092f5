package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"

	"github.com/mezzo-ml/mezzo/backend/tensor"
	"github.com/mezzo-ml/mezzo/keras/internal/atomicfile"
	"github.com/mezzo-ml/mezzo/policy"
)

// WriteText writes the report as text: what String returns.
func (r *Report) WriteText(w io.Writer) error {
	_, err := io.WriteString(w, r.String())
	return err
}

// number is a float64 in JSON: what JSON has no number for is "Infinity", "-Infinity"
// or "NaN".
type number float64

func (x number) MarshalJSON() ([]byte, error) {
	switch f := float64(x); {
	case math.IsNaN(f):
		return []byte(`"NaN"`), nil
	case math.IsInf(f, 1):
		return []byte(`"Infinity"`), nil
	case math.IsInf(f, -1):
		return []byte(`"-Infinity"`), nil
	default:
		return strconv.AppendFloat(nil, f, 'g', 6, 64), nil
	}
}

type jsonReport struct {
	Kind      Kind              `json:"kind"`
	Summary   string            `json:"summary"`
	Before    jsonVerdict       `json:"before"`
	Tolerance number            `json:"tolerance"`
	Origin    *jsonOrigin       `json:"origin"`
	Suspects  []jsonSuspect     `json:"suspects"`
	Remedy    jsonRemedy        `json:"remedy"`
	Scale     *jsonScale        `json:"loss_scale"`
	Noise     []string          `json:"noise"`
	Lost      map[string]number `json:"lost_updates"`
	Trials    int               `json:"trials"`
	Taps      []jsonTap         `json:"taps"`
}

type jsonVerdict struct {
	Finite   bool   `json:"finite"`
	Loss     number `json:"loss"`
	Gradient number `json:"gradient"`
	Worst    string `json:"worst"`
}

type jsonOrigin struct {
	ID   tensor.TapID `json:"id"`
	Op   string       `json:"op"`
	Type string       `json:"type"`
}

type jsonSuspect struct {
	Layer string `json:"layer"`
	Why   string `json:"why"`
}

type jsonRemedy struct {
	Map        policy.Map     `json:"map"`
	Operations []tensor.TapID `json:"operations"`
	Scale      number         `json:"loss_scale"`
	MinScale   number         `json:"min_scale"` // 0: as it is
	Advice     string         `json:"advice"`
	Verified   bool           `json:"verified"`
	After      *jsonVerdict   `json:"after"`
}

type jsonScale struct {
	Present number `json:"present"`
	Fits    bool   `json:"fits"`
	Low     int    `json:"low"`
	LowAt   string `json:"low_at"`
	High    int    `json:"high"`
	HighAt  string `json:"high_at"`
	Flushed number `json:"flushed"`
}

type jsonTap struct {
	ID         tensor.TapID `json:"id"`
	Op         string       `json:"op"`
	Type       string       `json:"type"`
	Error      number       `json:"error"`
	Local      *number      `json:"local_error"`
	Largest    number       `json:"largest"`
	Headroom   number       `json:"headroom_bits"`
	Flushed    number       `json:"flushed"`
	NaNs       int64        `json:"nans"`
	Infinities int64        `json:"infinities"`
}

// MarshalJSON returns the report as JSON, in fields of snake_case. Numbers that JSON
// lacks are the strings "Infinity", "-Infinity" and "NaN".
//
// "taps" lists the values that have a shadow: "error" is the relative error of the
// value, "local_error" what its own operation loses, null if that was not looked at.
// "largest" is the largest magnitude of the shadow, and "headroom_bits" how many times
// that can double in the type of the value. "flushed" is the share of the elements that
// are 0 and have a shadow that is not. "nans" and "infinities" count those of the value.
// "loss_scale" is null without float16 gradients, remedy.loss_scale 0 if the present
// one is right, and remedy.map an object from paths to policies, null if none is needed.
func (r *Report) MarshalJSON() ([]byte, error) {
	j := jsonReport{
		Kind: r.Kind, Summary: r.Summary, Before: jsonVerdictOf(r.Before), Tolerance: number(r.Tolerance),
		Suspects: []jsonSuspect{}, Noise: append([]string{}, r.Noise...), Lost: map[string]number{}, Trials: r.Trials, Taps: []jsonTap{},
		Remedy: jsonRemedy{Map: r.Remedy.Map, Operations: append([]tensor.TapID{}, r.Remedy.Operations...), Scale: number(r.Remedy.Scale), MinScale: number(r.Remedy.MinScale), Advice: r.Remedy.Advice, Verified: r.Remedy.Verified},
	}
	for w, x := range r.Lost {
		j.Lost[w] = number(x)
	}

	if r.Remedy.Verified {
		after := jsonVerdictOf(r.Remedy.After)
		j.Remedy.After = &after
	}
	if o := r.Origin; o != nil {
		j.Origin = &jsonOrigin{o.ID, o.Op.String(), o.Type.String()}
	}
	for _, s := range r.Suspects {
		j.Suspects = append(j.Suspects, jsonSuspect{s.Layer, s.Why})
	}
	if a := r.Scale; a.Known {
		j.Scale = &jsonScale{number(a.Present), a.Fits(), a.Low, a.LowAt, a.High, a.HighAt, number(a.Flushed)}
	}
	if r.Taps != nil {
		for i := range r.Taps.Values {
			t := &r.Taps.Values[i]
			s := t.Shadow
			if s == nil {
				continue
			}
			v := jsonTap{
				ID: t.ID, Op: t.Op.String(), Type: t.Type.String(), Error: number(relative(s)), Largest: number(s.Y.Largest), Headroom: number(headroom(t)),
				Flushed: number(share(s.Flushed, s.Count)), NaNs: s.X.NaNs, Infinities: s.X.Infinities,
			}
			if t.Local != nil {
				x := number(relative(t.Local))
				v.Local = &x
			}
			j.Taps = append(j.Taps, v)
		}
	}
	return json.Marshal(j)
}

func jsonVerdictOf(v Verdict) jsonVerdict {
	return jsonVerdict{v.Finite, number(v.Loss), number(v.Gradient), v.Worst}
}

// headroom is how many times the largest element of the shadow can double in the type
// of the value; infinite if all are 0.
func headroom(t *tensor.Tap) float64 { return math.Log2(t.Type.DType.Max() / t.Shadow.Y.Largest) }

// share is n of all; 0 of none.
func share(n, all int64) float64 { return float64(n) / float64(max(all, 1)) }

// Save writes the report to a file, as text, JSON or HTML by its suffix: .txt, .json or
// .html. An error leaves a file of that name as it was.
func (r *Report) Save(path string) error {
	var write func(w io.Writer) error
	switch suffix := filepath.Ext(path); suffix {
	case ".txt":
		write = r.WriteText
	case ".json":
		write = func(w io.Writer) error {
			b, err := json.Marshal(r)
			if err == nil {
				_, err = w.Write(append(b, '\n'))
			}
			return err
		}
	case ".html":
		write = r.WriteHTML
	default:
		return fmt.Errorf("doctor: Save: %s has the suffix %q, want .txt, .json or .html", path, suffix)
	}
	if err := atomicfile.Write(atomicfile.System{}, path, func(f atomicfile.File) error { return write(f) }); err != nil {
		return fmt.Errorf("doctor: Save: %s: %w", path, err)
	}
	return nil
}
