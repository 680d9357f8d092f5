package cpu
import ("testing";"time";"runtime";"sync/atomic")
type dbg struct{ by [2]atomic.Int32 }
func (d *dbg) chunk(r *run, w *worker, i int) {
	k := 1
	if w == &r.worker { k = 0 }
	d.by[k].Add(1)
	t := time.Now(); for time.Since(t) < time.Millisecond {}
}
func TestDbg(t *testing.T) {
	r := &run{program: &Program{}, procs: 2}
	r.job.done = make(chan struct{}, 1)
	for range 5 {
		d := &dbg{}
		t0 := time.Now()
		r.parallel(d, 32, 1<<20)
		t.Log(time.Since(t0), d.by[0].Load(), d.by[1].Load(), runtime.GOMAXPROCS(0))
	}
}
