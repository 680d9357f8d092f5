package policy

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Map gives the names of policies by the paths of layers (Keras: DTypePolicyMap).
// A key is
//
//   - the path of a layer, "dense_1", or of one in it, "attention/query",
//   - the path of a nested model, "encoder", which includes "encoder/dense", or
//   - a regular expression that matches a whole path: "block_[0-9]+/norm".
//
// The longest part of a layer's path that has a key counts, and a key that is equal
// to it is preferred to an expression. Two expressions for one path are an error, as
// in Keras, unless they name the same policy. Keras has no keys that include the
// layers below: "encoder" there is "encoder" and not "encoder/dense".
//
// As JSON a Map is an object with sorted keys. %#v prints it as a literal to paste.
type Map map[string]string

// Check returns an error for a key that is no regular expression and for an unknown
// policy.
func (m Map) Check() error {
	_, err := m.compile()
	return err
}

// For returns the policy of the layer at path, and whether the map has one.
func (m Map) For(path string) (p Policy, ok bool, err error) {
	c, err := m.compile()
	if err != nil {
		return Policy{}, false, err
	}
	return c.find(path)
}

// At is For without the keys of layers that contain the path. It is for layers in a
// layer, which have the policy of that layer unless a key names them.
func (m Map) At(path string) (p Policy, ok bool, err error) {
	c, err := m.compile()
	if err != nil {
		return Policy{}, false, err
	}
	return c.at(strings.Trim(path, "/"))
}

// GoString returns the map as a literal with sorted keys, for %#v.
func (m Map) GoString() string {
	if m == nil {
		return "policy.Map(nil)"
	}
	var s strings.Builder
	s.WriteString("policy.Map{")
	for i, key := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			s.WriteString(", ")
		}
		fmt.Fprintf(&s, "%q: %q", key, m[key])
	}
	s.WriteString("}")
	return s.String()
}

// compiled is a Map with its policies and expressions parsed. Nil has no keys.
type compiled struct {
	exact    map[string]Policy
	patterns []pattern // in the order of their keys
}

type pattern struct {
	key    string
	whole  *regexp.Regexp
	policy Policy
}

func (m Map) compile() (*compiled, error) {
	c := &compiled{exact: make(map[string]Policy, len(m))}
	for _, key := range slices.Sorted(maps.Keys(m)) {
		p, err := Parse(m[key])
		if err != nil {
			return nil, fmt.Errorf("%w, for the layers at %q", err, key)
		}
		c.exact[strings.Trim(key, "/")] = p
		if regexp.QuoteMeta(key) == key {
			continue
		}
		if _, err := regexp.Compile(key); err != nil {
			return nil, fmt.Errorf("policy: the key %q of a map is no regular expression: %w", key, err)
		}
		c.patterns = append(c.patterns, pattern{key, regexp.MustCompile("^(?:" + key + ")$"), p})
	}
	return c, nil
}

// find returns the policy of the longest part of path with a key.
func (c *compiled) find(path string) (Policy, bool, error) {
	for at := strings.Trim(path, "/"); at != ""; at = at[:max(strings.LastIndexByte(at, '/'), 0)] {
		if p, ok, err := c.at(at); ok || err != nil {
			return p, ok, err
		}
	}
	return Policy{}, false, nil
}

// at returns the policy of the key for path itself.
func (c *compiled) at(path string) (Policy, bool, error) {
	if c == nil {
		return Policy{}, false, nil
	}
	if p, ok := c.exact[path]; ok {
		return p, true, nil
	}
	var found *pattern
	for i, p := range c.patterns {
		switch {
		case !p.whole.MatchString(path):
		case found == nil:
			found = &c.patterns[i]
		case p.policy != found.policy:
			return Policy{}, false, fmt.Errorf("policy: the layer at %q matches two keys of the map, %q (%s) and %q (%s); write keys that exclude each other", path, found.key, found.policy.Name, p.key, p.policy.Name)
		}
	}
	if found == nil {
		return Policy{}, false, nil
	}
	return found.policy, true, nil
}
