package results

// batchRows divides the rows of a page.
const batchRows = 128

// batch holds rows back until there are some to be written column by column, while they are in the processor's cache.
type batch[T any] struct {
	rows  []T
	write func([]T) error
}

func (b *batch[T]) add(row *T) error {
	b.rows = append(b.rows, *row)
	if len(b.rows) < batchRows {
		return nil
	}
	return b.flush()
}

func (b *batch[T]) flush() error {
	rows := b.rows
	b.rows = rows[:0]
	return b.write(rows)
}
