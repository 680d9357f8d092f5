package tiling

// Layout places buffers in scratch memory; its value is the bytes taken so far.
type Layout int

// Take returns the offset of a new buffer, aligned to a cache line.
func (l *Layout) Take(bytes int) int {
	at := int(*l)
	*l += Layout(RoundUp(bytes, 64))
	return at
}

// TakeApart is Take for a row that a loop writes while it reads the next ones. A load
// at the page offset of a recent store waits for it, as if it were the same memory
// (4K aliasing), so the next buffer lies some lines further within its page.
func (l *Layout) TakeApart(bytes int) int {
	const page, further = 4096, 13 * 64
	at := l.Take(bytes)
	if bytes >= page/4 {
		l.Take((further - RoundUp(bytes, 64)) & (page - 1))
	}
	return at
}
