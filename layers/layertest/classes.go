package layertest

import (
	"reflect"
	"testing"

	"github.com/mezzo-ml/mezzo/layers"
)

// Classes requires a case for each registered class of the package that the first
// case is of.
func Classes(t *testing.T, cases []Case) {
	t.Helper()
	path := func(l layers.Layer) string { return reflect.TypeOf(l).Elem().PkgPath() }
	of, seen := path(cases[0].Make()), map[string]bool{}
	for _, c := range cases {
		seen[layers.Class(c.Make())] = true
	}
	for _, class := range layers.Classes() {
		l, err := layers.UnmarshalConfig([]byte(`{"class_name": "` + class + `", "config": {}}`))
		if err != nil {
			t.Fatal(err)
		}
		if path(l) == of && !seen[class] {
			t.Errorf("class %s is registered and has no case", class)
		}
	}
}
