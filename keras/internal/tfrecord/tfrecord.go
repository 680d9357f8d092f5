// Package tfrecord is the framing of TensorFlow's files of records, which
// TensorBoard's event files are too: the length of the record (8 bytes,
// little-endian), its checksum, the record, and its checksum
// (tensorflow/core/lib/io/record_writer.h).
package tfrecord

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Checksum is the masked CRC-32C of b. It is masked so that checksums of data
// that has checksums in it stay good.
func Checksum(b []byte) uint32 {
	sum := crc32.Checksum(b, castagnoli)
	return (sum>>15 | sum<<17) + 0xa282ead8
}

// Append adds the record data to b.
func Append(b, data []byte) []byte {
	at := len(b)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(data)))
	b = binary.LittleEndian.AppendUint32(b, Checksum(b[at:]))
	b = append(b, data...)
	return binary.LittleEndian.AppendUint32(b, Checksum(data))
}

// Read reads a record of at most limit bytes. At the end of the file, and only
// there, the error is io.EOF.
func Read(r io.Reader, limit int64) ([]byte, error) {
	var head [12]byte
	if n, err := io.ReadFull(r, head[:]); err != nil {
		if err == io.EOF {
			return nil, err
		}
		return nil, safeio.Error(err, "bytes of its header", n, len(head))
	}
	if got, want := binary.LittleEndian.Uint32(head[8:]), Checksum(head[:8]); got != want {
		return nil, fmt.Errorf("the checksum of its length is %#08x, want %#08x", got, want)
	}
	length := binary.LittleEndian.Uint64(head[:])
	if length > uint64(max(limit, 0)) {
		return nil, fmt.Errorf("it has %d bytes, want at most %d; see MaxRecord", length, limit)
	}
	data, err := safeio.Read(r, int(length), "bytes")
	if err != nil {
		return nil, err
	}
	if n, err := io.ReadFull(r, head[:4]); err != nil {
		return nil, safeio.Error(err, "bytes of its checksum", n, 4)
	}
	if got, want := binary.LittleEndian.Uint32(head[:]), Checksum(data); got != want {
		return nil, fmt.Errorf("its checksum is %#08x, want %#08x", got, want)
	}
	return data, nil
}
