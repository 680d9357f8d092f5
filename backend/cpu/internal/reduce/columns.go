package reduce

import (
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/exec"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/lanes"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/tiling"
	"github.com/mezzo-ml/mezzo/backend/cpu/internal/vec"
	"github.com/mezzo-ml/mezzo/backend/dtype"
)

const (
	columnRows    = 128     // that are added up in float32
	columnBlock   = 1 << 15 // elements that are gone through again while L2 has them
	columnPart    = 1 << 15 // elements of a segment, at least
	columnStreams = 512     // columns from which on rows are taken downRows at a time
	narrowColumns = 64      // columns below which several rows are taken as one
	columnLanes   = 16      // columns that assembly takes together
)

// columnWalk is how kernels go down the columns of matrices [outer rows width].
// Rows are cut into segments, by shape, whose results are joined in order; a
// segment is cut into tiles of columns, and these are gone through in blocks
// of rows, with sums in float32, which are joined in float64.
//
// Assembly takes whole vectors. Where rows are short, several are taken as one
// that consists of them, and what is left at the end of a segment is done in
// Go. Else the last vector of a tile overlaps the one before it.
type columnWalk struct {
	outer, rows, width int
	loops              *columnLoops
	in                 dtype.DType // of what they go through
	converts           bool        // operands are brought into that type
	unit               int         // rows that are taken as one
	tile, tiles        int         // columns of a tile
	places             int         // of a tile, at most
	block              int         // of so many units
	segment, segments  int         // rows
	group              int         // segments' tiles in a chunk
}

// newColumnWalk is for operands of the given types. They are converted to float32
// unless there are loops for them.
func newColumnWalk(outer, rows, width int, types ...dtype.DType) columnWalk {
	k := columnWalk{outer: outer, rows: rows, width: width, unit: 1, tile: min(width, columnTile), in: types[0]}
	for _, d := range types {
		if d != k.in || columnLoopsOf(d) == nil {
			k.in, k.converts = dtype.Float32, true
		}
	}
	k.loops = columnLoopsOf(k.in)
	k.places = k.tile
	if vec.Current() != nil {
		if width > 0 && width < narrowColumns {
			for k.unit*width%columnLanes != 0 || k.unit*width < narrowColumns {
				k.unit *= 2
			}
		}
		k.places = tiling.RoundUp(k.unit*k.tile, columnLanes)
	}
	k.tiles = tiling.CeilDiv(width, max(1, k.tile))
	k.block = max(1, min(columnRows, columnBlock/max(1, k.places)))
	// Few segments, as the results of each take memory.
	k.segment = tiling.RoundUp(max(columnRows, tiling.CeilDiv(rows, 64), columnPart/max(1, width)), k.unit)
	k.segments = max(1, tiling.CeilDiv(rows, k.segment))
	k.group = max(1, columnPart/max(1, min(k.segment, rows)*k.tile))
	return k
}

// units is how many tiles of segments there are.
func (k *columnWalk) units() int { return k.outer * k.segments * k.tiles }

// parallel goes through them all; work is that of an element.
func (k *columnWalk) parallel(r *exec.Run, t exec.Task, work int) {
	r.Parallel(t, tiling.CeilDiv(k.units(), k.group), work*k.outer*k.rows*k.width)
}

// columnsTile is a tile of a segment. It has a place for each column of a
// unit, and then those of the overlapping vector, if there is one.
type columnsTile struct {
	outer, segment int
	first          int // element of the matrices that it begins with
	rows, whole    int // of it, and of whole units
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
	if vec.Current() != nil && t.main%columnLanes != 0 {
		t.main = t.width / columnLanes * columnLanes
		t.places = t.main + columnLanes
	}
	return t
}

// overlap is the first column of the overlapping vector. It is left of the
// tile if that has less columns than a vector.
func (t *columnsTile) overlap() int { return t.width - columnLanes }

// sameColumn calls f with the places of a column of the tile, one in each row
// of a unit.
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

// rowsOf are some rows of an operand as loops take them.
type rowsOf struct {
	data   []byte
	at     int // element of the first row and column
	stride int // elements
}

// load returns rows of units from element first on, converted if they must be.
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

// leftRows are the rows of a segment that make no unit, in float32: they follow
// each other, as units are of whole rows.
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

// strips calls f with the places of the tile, and the columns that these begin
// with, for rows that are to be taken together.
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

// elements are those from a row and column on.
func (k *columnWalk) elements(x rowsOf, row, column int) []byte {
	return x.data[(x.at+row*x.stride+column)*k.in.Size():]
}

// converted is the bytes of a block in float32.
func (k *columnWalk) converted() int { return 4 * max(1, k.block) * (k.places + columnLanes) }

// prefetch has a block read at the rate that memory gives.
func (k *columnWalk) prefetch(t *columnsTile, data []byte, d dtype.DType, first, rows int) {
	if v := vec.Current(); v != nil && k.tiles == 1 && len(data) >= lanes.NonTemporalBytes {
		v.PrefetchLoad(data[first*d.Size() : (first+rows*k.unit*k.width)*d.Size()])
	}
}

// columnLoops are sums down columns of elements as they lie in memory, of one
// type. Rows are stride elements apart and have as many columns as sum; what
// comes out is added.
type columnLoops struct {
	sums       func(sum []float32, x []byte, rows, stride int)
	deviations func(sum, squares, center []float32, x []byte, rows, stride int)
	products   func(sum, products, center []float32, x, grad []byte, rows, stride int)
}

// columnLoopsOf are the loops for a type, or nil where its elements must be
// converted to float32 first. Those in assembly take whole vectors.
func columnLoopsOf(d dtype.DType) *columnLoops {
	v := vec.Current()
	switch {
	case v == nil && d == dtype.Float32:
		return &plainColumns
	case v == nil:
		return nil
	case d == dtype.Float16:
		return inBytes(v.ColumnsF16)
	case d == dtype.BFloat16:
		return inBytes(v.ColumnsBF16)
	}
	return inBytes(v.Columns)
}

func inBytes[T float32 | uint16](c vec.ColumnSums[T]) *columnLoops {
	return &columnLoops{
		func(sum []float32, x []byte, rows, stride int) { c.Sums(sum, dtype.View[T](x), rows, stride) },
		func(sum, squares, center []float32, x []byte, rows, stride int) {
			c.Deviations(sum, squares, center, dtype.View[T](x), rows, stride)
		},
		func(sum, products, center []float32, x, grad []byte, rows, stride int) {
			c.Products(sum, products, center, dtype.View[T](x), dtype.View[T](grad), rows, stride)
		},
	}
}

// plainColumns are the loops in Go, of float32 and any number of columns.
var plainColumns = columnLoops{
	sums: func(sum []float32, x []byte, rows, stride int) {
		v := dtype.View[float32](x)
		for r := range rows {
			for i, e := range v[r*stride:][:len(sum)] {
				sum[i] += e
			}
		}
	},
	deviations: func(sum, squares, center []float32, x []byte, rows, stride int) {
		v := dtype.View[float32](x)
		for r := range rows {
			for i, e := range v[r*stride:][:len(sum)] {
				d := e - center[i]
				sum[i] += d
				squares[i] += d * d
			}
		}
	},
	products: func(sum, products, center []float32, x, grad []byte, rows, stride int) {
		v, g := dtype.View[float32](x), dtype.View[float32](grad)
		for r := range rows {
			row := v[r*stride:][:len(sum)]
			for i, e := range g[r*stride:][:len(sum)] {
				sum[i] += e
				products[i] += e * (row[i] - center[i])
			}
		}
	},
}
