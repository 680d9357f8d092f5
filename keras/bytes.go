package keras

import "fmt"

// Bytes is a number of bytes: 2*keras.GiB. It prints as "1.50 GiB".
type Bytes int64

// Units of Bytes.
const (
	KiB Bytes = 1 << 10
	MiB Bytes = 1 << 20
	GiB Bytes = 1 << 30
)

// String returns the number in the largest unit that it has one of.
func (b Bytes) String() string {
	for _, u := range []struct {
		size Bytes
		name string
	}{{GiB, "GiB"}, {MiB, "MiB"}, {KiB, "KiB"}} {
		if b >= u.size || b <= -u.size {
			return fmt.Sprintf("%.2f %s", float64(b)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d B", int64(b))
}
