package keras

import "testing"

func TestNestErrors(t *testing.T) {
	m := line(t)
	if in, out := m.Nests(); in != nil || out != nil {
		t.Errorf("before it is built: got %v and %v, want nil", in, out)
	}
	wantError(t, m.SetNests(&Nest{}, &Nest{}), "model sequential: SetNests: it is not built; call it on data or Build it first")
	check(t, m.Build(3))
	for _, c := range []struct {
		in, out *Nest
		want    string
	}{
		{nil, &Nest{}, "inputs: got nil, want a nest"},
		{&Nest{}, nil, "outputs: got nil, want a nest"},
		{&Nest{Parts: []*Nest{nil}}, &Nest{}, "inputs: got nil, want a nest"},
		{&Nest{}, listOf(2), "got 2 outputs, want 1"},
		{&Nest{Keys: []string{"b", "a"}, Parts: []*Nest{{}, {}}}, &Nest{}, `inputs: got keys ["b" "a"] of 2 parts, want one for each, sorted`},
	} {
		wantError(t, m.SetNests(c.in, c.out), "model sequential: SetNests: "+c.want)
	}
	check(t, m.SetNests(listOf(1), &Nest{Keys: []string{"a"}, Parts: []*Nest{{}}}))
}
