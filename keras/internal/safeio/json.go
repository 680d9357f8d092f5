package safeio

import "fmt"

// JSON returns an error if a JSON text has more values and keys than values, or
// lists and objects nested deeper than depth. It takes no memory; decoding takes
// up to 30 bytes for each byte of the text. It does not check the text otherwise.
func JSON(text []byte, values int64, depth int) error {
	have, at := int64(1), 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			for i++; i < len(text) && text[i] != '"'; i++ {
				if text[i] == '\\' {
					i++
				}
			}
		case '[', '{':
			have++
			at++
		case ']', '}':
			at--
		case ',', ':':
			have++
		}
		if at > depth {
			return fmt.Errorf("lists and objects are nested more than %d deep", depth)
		}
		if have > values {
			return fmt.Errorf("got more than %d values and keys", values)
		}
	}
	return nil
}
