package tfrecord

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
)

// TestChecksum: the checksum of TensorFlow's own test of CRC-32C
// (tensorflow/core/lib/hash/crc32c_test.cc), masked.
func TestChecksum(t *testing.T) {
	crc := uint32(0x8a9136aa) // of 32 zeros
	if got, want := Checksum(bytes.Repeat([]byte{0}, 32)), (crc>>15|crc<<17)+0xa282ead8; got != want {
		t.Errorf("got %#x, want %#x", got, want)
	}
}

func TestRecords(t *testing.T) {
	var file []byte
	all := [][]byte{nil, []byte("a"), bytes.Repeat([]byte("0123456789"), 50_000)} // larger than what is read at first
	for _, data := range all {
		file = Append(file, data)
	}
	r := bytes.NewReader(file)
	for i, want := range all {
		got, err := Read(r, 1<<20)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("record %d: got %d bytes, %v, want %d", i, len(got), err, len(want))
		}
	}
	if _, err := Read(r, 1<<20); err != io.EOF {
		t.Errorf("got error %v, want io.EOF", err)
	}
	// Cut anywhere, a record is no end of the file, and no record.
	one := Append(nil, []byte("seven by"))
	for n := 1; n < len(one); n++ {
		if _, err := Read(bytes.NewReader(one[:n]), 100); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%d of %d bytes: got error %v, want io.ErrUnexpectedEOF", n, len(one), err)
		}
	}
	// No bit may change.
	for i := range 8 * len(one) {
		bad := bytes.Clone(one)
		bad[i/8] ^= 1 << (i % 8)
		if _, err := Read(bytes.NewReader(bad), 100); err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("bit %d: got error %v, want one of a checksum", i, err)
		}
	}
	if _, err := Read(bytes.NewReader(one), 7); err == nil || err.Error() != "it has 8 bytes, want at most 7; see MaxRecord" {
		t.Errorf("got error %v", err)
	}
	// A length of 2^63 with a good checksum takes no memory.
	head := append(bytes.Repeat([]byte{0}, 7), 0x80)
	sum := Checksum(head)
	head = append(head, byte(sum), byte(sum>>8), byte(sum>>16), byte(sum>>24))
	if _, err := Read(bytes.NewReader(head), 1<<40); err == nil || !strings.Contains(err.Error(), "want at most") {
		t.Errorf("got error %v", err)
	}
}
