package reduce

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

const (
	columnRows    = 128     // rows summed in float32
	columnBlock   = 1 << 15 // elements that are read again while they are in L2
	columnPart    = 1 << 15 // fewest elements per segment
	columnStreams = 512     // columns from which on rows are taken downRows at a time
	narrowColumns = 64      // columns below which several rows are taken as one
	columnLanes   = 16      // columns per step of the assembly
)

// columnWalk is the traversal of the columns of matrices [outer rows width]. Rows are
// cut into segments, by shape alone, whose results are joined in order. A segment is
// cut into tiles of columns, and a tile is processed in blocks of rows, with sums in
// float32 that are joined in float64.
//
// Assembly takes whole vectors. If rows are short, several consecutive rows are taken
// as one unit, and rows left at the end of a segment are done in Go. Otherwise the last
// vector of a tile overlaps the one before it.
type columnWalk struct {
	outer, rows, width int
	loops              *columnLoops
	in                 dtype.DType // type of the elements that loops read
	converts           bool        // operands are converted to that type
	unit               int         // rows per unit
	tile, tiles        int         // columns of a tile
	places             int         // most places of a tile
	block              int         // units per block
	segment, segments  int         // rows
	group              int         // tiles of segments per chunk
}

// newColumnWalk returns the traversal of operands of the given types. They are
// converted to float32 unless there are loops for them.
func newColumnWalk(outer, rows, width int, types ...dtype.DType) columnWalk {
	k := columnWalk{outer: outer, rows: rows, width: width, unit: 1, tile: min(width, columnTile), in: types[0]}
	for _, d := range types {
		if d != k.in || columnLoopsOf(d) == nil {
			k.in, k.converts = dtype.Float32, true
		}
	}
	k.loops = columnLoopsOf(k.in)
	if width > 0 && width < narrowColumns {
		for k.unit*width%columnLanes != 0 || k.unit*width < narrowColumns {
			k.unit *= 2
		}
	}
	k.places = tiling.RoundUp(k.unit*k.tile, columnLanes)
	k.tiles = tiling.CeilDiv(width, max(1, k.tile))
	k.block = max(1, min(columnRows, columnBlock/max(1, k.places)))
	// The results of each segment take memory, so there are few.
	k.segment = tiling.RoundUp(max(columnRows, tiling.CeilDiv(rows, 64), columnPart/max(1, width)), k.unit)
	k.segments = max(1, tiling.CeilDiv(rows, k.segment))
	k.group = max(1, columnPart/max(1, min(k.segment, rows)*k.tile))
	return k
}

// units returns the number of tiles of segments.
func (k *columnWalk) units() int { return k.outer * k.segments * k.tiles }

// parallel runs t on all of them; work is per element.
func (k *columnWalk) parallel(r *exec.Run, t exec.Task, work int) {
	r.Parallel(t, tiling.CeilDiv(k.units(), k.group), work*k.outer*k.rows*k.width)
}

// columnsTile is a tile of a segment. It has a place for each column of a unit,
// followed by those of the overlapping vector, if there is one.
type columnsTile struct {
	outer, segment int
	first          int // its first element in the matrices
	rows, whole    int // rows of the tile, and whole units
	column, width  int
	main, places   int
}

func (k *columnWalk) tileOf(u int) columnsTile {
	t := columnsTile{outer: u / k.tiles / k.segments, segment: u / k.tiles % k.segments, column: u % k.tiles * k.tile}
	t.rows = min(k.segment, k.rows-t.segment*k.segment)
	t.whole = t.rows / k.unit * k.unit
	t.width = min(k.tile, k.width-t.column)
	t.first = (t.outer*k.rows+t.segment*k.segment)*k.width + t.column
	t.main = k.unit * t.width
	t.places = t.main
	if t.main%columnLanes != 0 {
		t.main = t.width / columnLanes * columnLanes
		t.places = t.main + columnLanes
	}
	return t
}

// overlap returns the first column of the overlapping vector, relative to the tile. It
// is negative if the tile has fewer columns than a vector.
func (t *columnsTile) overlap() int { return t.width - columnLanes }

// sameColumn calls f with the places of a column of the tile, one for each row of a
// unit.
func (t *columnsTile) sameColumn(column int, f func(place int)) {
	switch {
	case t.main == t.places:
		for p := column; p < t.places; p += t.width {
			f(p)
		}
	case column < t.main:
		f(column)
	default:
		f(t.main + column - t.overlap())
	}
}

// rowsOf is some rows of an operand.
type rowsOf struct {
	data   []byte
	at     int // element of the first row and column
	stride int // elements
}

// load returns rows units from element first on, converted if necessary.
func (k *columnWalk) load(t *columnsTile, data []byte, d dtype.DType, first, rows int, conv []byte) rowsOf {
	if !k.converts {
		return rowsOf{data, first, k.unit * k.width}
	}
	ld := 0 // columns before the tile
	if t.places > t.main {
		ld = max(0, -t.overlap())
	}
	n, size := k.unit*t.width+ld, d.Size()
	x := lanes.ViewOf[float32](conv, rows*n)
	for r := range rows {
		from := first + r*k.unit*k.width - ld
		lanes.ToF32(x[r*n:(r+1)*n], data[from*size:(from+n)*size], d)
	}
	return rowsOf{conv, ld, n}
}

// leftRows returns, in float32, the rows at the end of a segment that do not fill a
// unit.
func (k *columnWalk) leftRows(t *columnsTile, data []byte, d dtype.DType, conv []byte) []byte {
	first, n, size := t.first+t.whole*k.width, (t.rows-t.whole)*k.width, d.Size()
	data = data[first*size : (first+n)*size]
	if d == dtype.Float32 {
		return data
	}
	x := lanes.ViewOf[float32](conv, n)
	lanes.ToF32(x, data, d)
	return conv
}

// strips calls f with places of the tile and their first columns, for rows that are
// processed together.
func (k *columnWalk) strips(t *columnsTile, rows int, f func(place, n, column, row, rows int)) {
	step := rows
	if t.places >= columnStreams {
		step = downRows
	}
	for row := 0; row < rows; row += step {
		if t.main > 0 {
			f(0, t.main, 0, row, min(step, rows-row))
		}
		if t.places > t.main {
			f(t.main, columnLanes, t.overlap(), row, min(step, rows-row))
		}
	}
}

// elements returns the elements from a row and column on.
func (k *columnWalk) elements(x rowsOf, row, column int) []byte {
	return x.data[(x.at+row*x.stride+column)*k.in.Size():]
}

// converted returns the bytes of a block in float32.
func (k *columnWalk) converted() int { return 4 * max(1, k.block) * (k.places + columnLanes) }

// prefetch prefetches a block in one long run.
func (k *columnWalk) prefetch(t *columnsTile, data []byte, d dtype.DType, first, rows int) {
	if v := vec.Native(); v != nil && k.tiles == 1 && len(data) >= lanes.NonTemporalBytes {
		v.PrefetchLoad(data[first*d.Size() : (first+rows*k.unit*k.width)*d.Size()])
	}
}

// columnLoops are sums down columns of elements of one type as they lie in memory. Rows
// are stride elements apart and have len(sum) columns. Results are added to sum.
type columnLoops struct {
	sums       func(sum []float32, x []byte, rows, stride int)
	deviations func(sum, squares, center []float32, x []byte, rows, stride int)
	products   func(sum, products, center []float32, x, grad []byte, rows, stride int)
}

// columnLoopsOf returns the loops for a type, or nil if its elements must be converted
// to float32 first. Assembly takes whole vectors.
func columnLoopsOf(d dtype.DType) *columnLoops {
	v := vec.Native()
	switch {
	case d == dtype.Float32:
		return inBytes(*lanes.Columns())
	case v == nil:
		return nil
	case d == dtype.Float16:
		return inBytes(v.ColumnsF16)
	case d == dtype.BFloat16:
		return inBytes(v.ColumnsBF16)
	}
	return nil
}

func inBytes[T float32 | uint16](c vec.ColumnSums[T]) *columnLoops {
	return &columnLoops{
		func(sum []float32, x []byte, rows, stride int) { c.Sums(sum, dtype.View[T](x), rows, stride) },
		func(sum, squares, center []float32, x []byte, rows, stride int) {
			c.Deviations(sum, squares[:len(sum)], center[:len(sum)], dtype.View[T](x), rows, stride)
		},
		func(sum, products, center []float32, x, grad []byte, rows, stride int) {
			c.Products(sum, products[:len(sum)], center[:len(sum)], dtype.View[T](x), dtype.View[T](grad), rows, stride)
		},
	}
}

// plainColumns are the loops in Go, for rows that are left.
var plainColumns = inBytes(lanes.PlainColumns)
