package serving

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/layers/preprocessing"
)

// TestGolden: requests as tritonclient.http and curl have sent them are answered with
// the bytes that the clients have read and found right. grpc/testdata/record.py has
// written them.
func TestGolden(t *testing.T) {
	x := keras.Named("x", keras.Input())
	m, err := keras.NewModel(x, keras.Apply(&preprocessing.Rescaling{Scale: 0.5, Offset: 2, Name: "y"}, x))
	if err != nil {
		t.Fatal(err)
	}
	s := New()
	t.Cleanup(s.Close)
	if err := s.Add("half_plus_two", 1, m, Options{}); err != nil {
		t.Fatal(err)
	}
	h := s.Handler(HandlerOptions{})
	text, err := os.ReadFile("testdata/golden.json")
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Client, Method, Path string
		Headers              map[string]string
		Request, Answer      []byte
		Status               int
		AnswerHeaders        map[string]string `json:"answer_headers"`
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		var headers []string
		for key, value := range one.Headers {
			headers = append(headers, key, value)
		}
		w := ask(h, one.Method, one.Path, string(one.Request), headers...)
		if w.Code != one.Status || w.Body.String() != string(one.Answer) {
			t.Errorf("%s, %s %s %q:\ngot  %d %q\nwant %d %q", one.Client, one.Method, one.Path, one.Request, w.Code, w.Body, one.Status, one.Answer)
		}
		for key, value := range one.AnswerHeaders {
			if got := w.Header().Get(key); got != value {
				t.Errorf("%s, %s: %s is %q, want %q", one.Client, one.Path, key, got, value)
			}
		}
	}
	if len(all) < 10 {
		t.Errorf("%d requests", len(all))
	}
}
