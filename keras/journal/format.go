package journal

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/doctor"
	"github.com/mezzo-ml/mezzo/keras/internal/safeio"
)

// The format, all numbers little-endian: magic and version, then frames of
//
//	1 byte    kind
//	3 bytes   length of the body
//	…         body
//	4 bytes   CRC-32C of kind, length and body
//
// A body is a session in JSON, a step, or a state. A session is followed by the state that it
// begins with. A file is only appended to. So a writer that is killed leaves at most its last
// frame unfinished.
const (
	magic       = "\x89MEZJRN\n" // no text, and spoilt by what spoils text
	version     = 1
	frameStart  = 4
	frameEnd    = 4
	maxSession  = 1 << 20
	maxFrame    = frameStart + maxSession + frameEnd
	stepBytes   = 11 * 8
	stateBytes  = 8 * 8
	maxJSONSize = 1 << 14 // values of a session
)

// Kinds of frames.
const (
	kindSession = iota + 1
	kindStep
	kindState
)

// What errors.Is finds in the errors of Load and Read.
var (
	ErrNoJournal = errors.New("it is no journal")
	ErrVersion   = errors.New("another version of this module wrote it")
	ErrDamaged   = errors.New("it is damaged")
)

// Session is the beginning of a Fit: a new training, or one that is resumed.
type Session struct {
	Args           []string // of the program
	Made           doctor.Origin
	Setup          keras.RunConfig
	Ranks          int
	Model, Program uint64 `json:",string"` // see keras.JournalState
	WeightParts    int
	SlotParts      int
}

// State has the checksums of a state between two steps.
type State struct {
	Number                         int64 // steps done, over all epochs
	Epoch, Step                    int   // as in keras.State: of the next step
	Data                           keras.Position
	Weights, Slots, Random, Totals uint64
	LossScale                      float64
}

// Step has the checksums of a step.
type Step = keras.JournalStep

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends a frame.
func appendFrame(dst []byte, kind byte, body []byte) []byte {
	at := len(dst)
	n := len(body)
	dst = append(dst, kind, byte(n), byte(n>>8), byte(n>>16))
	dst = append(dst, body...)
	return binary.LittleEndian.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

func start() []byte { return binary.LittleEndian.AppendUint32([]byte(magic), version) }

// numbers writes and reads bodies of numbers of 8 bytes.
type numbers struct {
	b    []byte
	read bool
}

func (n *numbers) uint64(x *uint64) {
	if n.read {
		*x, n.b = binary.LittleEndian.Uint64(n.b), n.b[8:]
		return
	}
	n.b = binary.LittleEndian.AppendUint64(n.b, *x)
}

func (n *numbers) int64(x *int64) {
	u := uint64(*x)
	n.uint64(&u)
	*x = int64(u)
}

func (n *numbers) float(x *float64) {
	u := math.Float64bits(*x)
	n.uint64(&u)
	*x = math.Float64frombits(u)
}

// pair is two numbers of 4 bytes.
func (n *numbers) pair(x, y *int) {
	u := uint64(uint32(*x)) | uint64(uint32(*y))<<32
	n.uint64(&u)
	*x, *y = int(int32(u)), int(int32(u>>32))
}

func (n *numbers) step(s *Step) {
	n.int64(&s.Number)
	n.pair(&s.Epoch, &s.Step)
	n.pair(&s.Data.Epoch, &s.Data.Batch)
	n.uint64(&s.Inputs)
	n.uint64(&s.Weights)
	n.uint64(&s.Slots)
	n.uint64(&s.Random)
	n.uint64(&s.Totals)
	n.float(&s.Loss)
	n.float(&s.LossScale)
	n.float(&s.GradientNorm)
}

func (n *numbers) state(s *State) {
	n.int64(&s.Number)
	n.pair(&s.Epoch, &s.Step)
	n.pair(&s.Data.Epoch, &s.Data.Batch)
	n.uint64(&s.Weights)
	n.uint64(&s.Slots)
	n.uint64(&s.Random)
	n.uint64(&s.Totals)
	n.float(&s.LossScale)
}

// appendStep appends the frame of a step.
func appendStep(dst []byte, s *Step) []byte {
	var body [stepBytes]byte
	n := numbers{b: body[:0]}
	n.step(s)
	return appendFrame(dst, kindStep, n.b)
}

func appendState(dst []byte, s *State) []byte {
	var body [stateBytes]byte
	n := numbers{b: body[:0]}
	n.state(s)
	return appendFrame(dst, kindState, n.b)
}

func appendSession(dst []byte, s *Session) ([]byte, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	if len(text) > maxSession {
		return nil, fmt.Errorf("the header has %d bytes, want at most %d", len(text), maxSession)
	}
	return appendFrame(dst, kindSession, text), nil
}

// visitor gets the frames of a file.
type visitor struct {
	session func(Session) error
	step    func(Step) error
	state   func(State) error
}

// read visits the frames of a file of so many bytes and returns how many bytes they
// take up. A rest that a writer has left which was killed is not counted. It takes memory for
// one frame at a time.
func read(r io.Reader, size int64, v visitor) (whole int64, err error) {
	in := bufio.NewReaderSize(io.LimitReader(r, size), 1<<16)
	first := make([]byte, len(start()))
	if _, err := io.ReadFull(in, first); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return 0, ErrNoJournal
		}
		return 0, err
	}
	if string(first[:len(magic)]) != magic {
		return 0, ErrNoJournal
	}
	if n := binary.LittleEndian.Uint32(first[len(magic):]); n != version {
		return 0, fmt.Errorf("%w: version %d, want %d", ErrVersion, n, version)
	}
	whole = int64(len(first))
	frame := make([]byte, 0, 1024)
	for number := 1; whole < size; number++ {
		frame, err = readFrame(in, frame[:0])
		switch {
		case err == nil:
		case errors.Is(err, errTorn) && tail(in):
			return whole, nil
		case errors.Is(err, errTorn):
			return whole, fmt.Errorf("%w: frame %d, at byte %d", ErrDamaged, number, whole)
		default:
			return whole, err
		}
		if err := v.visit(frame, number); err != nil {
			return whole, fmt.Errorf("frame %d, at byte %d: %w", number, whole, err)
		}
		whole += int64(len(frame))
	}
	return whole, nil
}

// errTorn says that there is no whole frame.
var errTorn = errors.New("the frame is not whole")

// readFrame reads a frame whose checksum is right. With errTorn it returns what it has read.
func readFrame(in *bufio.Reader, frame []byte) ([]byte, error) {
	frame = frame[:frameStart]
	n, err := io.ReadFull(in, frame)
	if err != nil {
		return frame[:n], torn(err)
	}
	body := int(frame[1]) | int(frame[2])<<8 | int(frame[3])<<16
	if want := map[byte]int{kindSession: body, kindStep: stepBytes, kindState: stateBytes}[frame[0]]; body == 0 || body != want || body > maxSession {
		return frame, errTorn
	}
	for len(frame) < frameStart+body+frameEnd { // memory only for what is there
		at := len(frame)
		frame = append(frame, make([]byte, min(frameStart+body+frameEnd-at, 1<<16))...)
		n, err := io.ReadFull(in, frame[at:])
		if err != nil {
			return frame[:at+n], torn(err)
		}
	}
	end := len(frame) - frameEnd
	if crc32.Checksum(frame[:end], castagnoli) != binary.LittleEndian.Uint32(frame[end:]) {
		return frame, errTorn
	}
	return frame, nil
}

func torn(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errTorn
	}
	return err
}

// tail reports whether nothing follows a frame that is not whole, or only zeros, which
// some file systems leave after a power cut.
func tail(in *bufio.Reader) bool {
	for {
		b, err := in.ReadByte()
		if err != nil {
			return true
		}
		if b != 0 {
			return false
		}
	}
}

func (v *visitor) visit(frame []byte, number int) error {
	body := frame[frameStart : len(frame)-frameEnd]
	n := numbers{b: body, read: true}
	if number == 1 && frame[0] != kindSession {
		return fmt.Errorf("%w: it does not begin with a session", ErrDamaged)
	}
	switch frame[0] {
	case kindSession:
		if err := safeio.JSON(body, maxJSONSize, 16); err != nil {
			return err
		}
		var s Session
		if err := json.Unmarshal(body, &s); err != nil {
			return err
		}
		if s.WeightParts < 1 || s.SlotParts < 1 {
			return fmt.Errorf("%w: a session contradicts itself", ErrDamaged)
		}
		return v.session(s)
	case kindStep:
		var s Step
		n.step(&s)
		if s.Number < 1 {
			return fmt.Errorf("%w: got step %d", ErrDamaged, s.Number)
		}
		return v.step(s)
	default:
		var s State
		n.state(&s)
		if s.Number < 0 {
			return fmt.Errorf("%w: got a state after %d steps", ErrDamaged, s.Number)
		}
		return v.state(s)
	}
}
