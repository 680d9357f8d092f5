// Recurrent cells: all that is computed at a step but for the product with the
// recurrent kernel, and its gradient. A thread has a unit of a sample. Package
// op says what the cells are, and where what they keep of a step lies.

enum { TANH_CELL, RELU_CELL, LSTM_CELL, GRU_CELL, GRU_BEFORE_CELL, GRU_BEFORE_SECOND };

INLINE float tanh_of(float x) { return tanhf(x); }
INLINE double tanh_of(double x) { return tanh(x); }
template <class W> INLINE W sigmoid(W x) {
	const W e = exp_of(x < 0 ? x : -x);
	return (x < 0 ? e : 1) / (1 + e);
}
// less is y·(1-x²), the gradient through a tanh; through is y·x·(1-x), that
// through a logistic function.
template <class W> INLINE W less(W y, W x) { return y * (1 - x * x); }
template <class W> INLINE W through(W y, W x) { return y * (x * (1 - x)); }

// rnn_step computes the outputs after a step from those before it, for n units
// of all samples. What comes from the input, z, is of the type that is computed
// in where shift is to be added to it; products is that with the recurrent
// kernel. The first step copies the first output and the first state to where
// they lie among the others. carry is the state between steps.
//
// The cell whose reset gate acts before the product takes two calls: the first
// one makes the operand of its second product, apart.
template <class T> INLINE void rnn_step(i64 cell, i64 n, i64 units, const void *z, const T *shift, const typename Wide<T>::type *products,
	const typename Wide<T>::type *apart, const T *bias, const u8 *mask, const T *before, T *after, T *first, const T *state,
	typename Wide<T>::type *carry, T *states, T *first_state, T *saved) {
	typedef typename Wide<T>::type W;
	const i64 gates = cell == LSTM_CELL ? 4 : cell >= GRU_CELL ? 3 : 1, wide = cell >= GRU_BEFORE_CELL ? 2 : gates;
	EACH(i, n) {
		const i64 row = i / units, unit = i - row * units;
		const auto in = [&](i64 g) {
			const i64 at = (row * gates + g) * units + unit;
			return shift ? ((const W *)z)[at] + get(shift, g * units + unit) : get((const T *)z, at);
		};
		const auto product = [&](i64 g) { return products[(row * wide + g) * units + unit]; };
		const auto keep = [&](i64 g, W x) { set(saved + (g * n + i), 0, x); };
		const bool seen = !mask || mask[row];
		const W last = get(before, i);
		W h;
		if (cell == LSTM_CELL) {
			const W a = sigmoid(in(0) + product(0)), f = sigmoid(in(1) + product(1));
			const W g = tanh_of(in(2) + product(2)), o = sigmoid(in(3) + product(3));
			keep(0, a);
			keep(1, f);
			keep(2, g);
			keep(3, o);
			W c = state ? get(state, i) : carry[i];
			if (state) set(first_state + i, 0, c);
			const W next = f * c + a * g;
			if (seen) c = next;
			carry[i] = c;
			set(states + i, 0, c);
			h = o * tanh_of(next);
		} else if (cell >= GRU_CELL) {
			const W x = sigmoid(in(0) + product(0));
			W g;
			if (cell == GRU_BEFORE_SECOND) {
				g = tanh_of(in(2) + apart[i]);
				keep(2, g);
			} else {
				const W e = sigmoid(in(1) + product(1));
				keep(0, x);
				keep(1, e);
				if (cell == GRU_BEFORE_CELL) {
					keep(3, e * last);
					continue;
				}
				const W q = product(2) + get(bias, unit);
				g = tanh_of(in(2) + e * q);
				keep(2, g);
				keep(3, q);
			}
			h = g + x * (last - g);
		} else {
			h = in(0) + product(0);
			h = cell == TANH_CELL ? tanh_of(h) : h > 0 || is_nan(h) ? h : 0;
		}
		if (first) set(first + i, 0, last);
		set(after + i, 0, seen ? h : last);
	}
}

// output_grad is the gradient by the output after a step: what the step after
// it has left, of which that by the product with the recurrent kernel is
// missing where the step was not skipped. begin says that there is no such step.
template <class T, class W> INLINE W output_grad(i64 i, i64 row, i64 begin, i64 adds, const T *last, const W *products, const W *pass, const u8 *mask) {
	if (begin) return last ? get(last, i) : 0;
	if (mask && !mask[row]) return pass[i];
	return adds ? pass[i] + products[i] : products[i];
}

// rnn_grad computes the gradients z by what comes from the input and recurrent
// by what the product with the recurrent kernel gave, and pass, the rest of the
// gradient by the output before the step. mask_after is the mask of the step
// after, whose product with the transposed kernel is products; carry is the
// gradient by the state. recurrent is null where it is z.
//
// The cell whose reset gate acts before the product takes rnn_grad_reset, too:
// apart is the gradient by its second product.
template <class T> INLINE void rnn_grad(i64 cell, i64 n, i64 units, i64 begin, const T *last, const T *last_state, const T *steps,
	const typename Wide<T>::type *products, const u8 *mask_after, const u8 *mask, typename Wide<T>::type *pass, typename Wide<T>::type *carry,
	const T *after, const T *before, const T *state, const T *state_before, const T *saved, T *z, T *recurrent, T *apart) {
	typedef typename Wide<T>::type W;
	const i64 gates = cell == LSTM_CELL ? 4 : cell >= GRU_CELL ? 3 : 1, adds = cell >= GRU_CELL;
	EACH(i, n) {
		const i64 row = i / units, unit = i - row * units;
		const bool seen = !mask || mask[row];
		const auto gate = [&](i64 g) { return get(saved, g * n + i); };
		const auto store = [&](i64 g, W x) {
			const i64 at = (row * gates + g) * units + unit;
			set(z + at, 0, seen ? x : 0);
			if (recurrent && g < 2) set(recurrent + at, 0, seen ? x : 0);
		};
		W dh = output_grad(i, row, begin, adds, last, products, pass, mask_after), left = dh;
		if (steps) left = dh += get(steps, i);
		if (cell == LSTM_CELL) {
			const W a = gate(0), f = gate(1), g = gate(2), o = gate(3), t = tanh_of(get(state, i));
			const W old = !begin ? carry[i] : last_state ? get(last_state, i) : 0;
			const W dc = old + less(dh * o, t);
			store(0, through(dc * g, a));
			store(1, through(dc * get(state_before, i), f));
			store(2, less(dc * a, g));
			store(3, through(dh * t, o));
			carry[i] = seen ? dc * f : old;
		} else if (cell >= GRU_CELL) {
			const W x = gate(0), g = gate(2), dp = less(dh * (1 - x), g);
			if (seen) left = dh * x;
			store(0, through(dh * (get(before, i) - g), x));
			store(2, dp);
			if (cell == GRU_CELL) {
				const W e = gate(1);
				store(1, through(dp * gate(3), e));
				set(recurrent + (row * 3 + 2) * units + unit, 0, seen ? dp * e : 0);
			} else set(apart + i, 0, seen ? dp : 0);
		} else {
			const W h = get(after, i);
			store(0, cell == TANH_CELL ? less(dh, h) : h > 0 ? dh : 0);
		}
		if (adds || mask) pass[i] = left;
	}
}

// rnn_grad_reset adds what comes through the reset gate, of which dq is the
// gradient by the operand of the second product. joined gets the gradients by
// what the first one gave.
template <class T> INLINE void rnn_grad_reset(i64 n, i64 units, const typename Wide<T>::type *dq, const u8 *mask, typename Wide<T>::type *pass,
	const T *before, const T *saved, T *z, T *joined) {
	typedef typename Wide<T>::type W;
	EACH(i, n) {
		const i64 row = i / units, unit = i - row * units;
		const bool seen = !mask || mask[row];
		const W e = get(saved, n + i), de = seen ? through(dq[i] * get(before, i), e) : 0;
		set(z + (row * 3 + 1) * units + unit, 0, de);
		set(joined + (row * 2 + 1) * units + unit, 0, de);
		set(joined + row * 2 * units + unit, 0, get(z, row * 3 * units + unit));
		if (seen) pass[i] += dq[i] * e;
	}
}

// rnn_grad_end writes the gradients by the first output and state.
template <class T> INLINE void rnn_grad_end(i64 n, i64 units, i64 begin, i64 adds, const T *last, const T *last_state, const typename Wide<T>::type *products,
	const u8 *mask, const typename Wide<T>::type *pass, const typename Wide<T>::type *carry, i64 type, void *out, void *state) {
	typedef typename Wide<T>::type W;
	EACH(i, n) {
		put(out, type, i, output_grad(i, i / units, begin, adds, last, products, pass, mask));
		if (state) put(state, type, i, !begin ? carry[i] : last_state ? get(last_state, i) : (W)0);
	}
}

#define RECURRENT(T, S) \
	extern "C" __global__ void rnn_step_##S(i64 cell, i64 n, i64 units, const void *z, const T *shift, const Wide<T>::type *products, const Wide<T>::type *apart, const T *bias, const u8 *mask, const T *before, T *after, T *first, const T *state, Wide<T>::type *carry, T *states, T *first_state, T *saved) { \
		rnn_step(cell, n, units, z, shift, products, apart, bias, mask, before, after, first, state, carry, states, first_state, saved); \
	} \
	KERNEL(rnn_step_##S) \
	extern "C" __global__ void rnn_grad_##S(i64 cell, i64 n, i64 units, i64 begin, const T *last, const T *last_state, const T *steps, const Wide<T>::type *products, const u8 *mask_after, const u8 *mask, Wide<T>::type *pass, Wide<T>::type *carry, const T *after, const T *before, const T *state, const T *state_before, const T *saved, T *z, T *recurrent, T *apart) { \
		rnn_grad(cell, n, units, begin, last, last_state, steps, products, mask_after, mask, pass, carry, after, before, state, state_before, saved, z, recurrent, apart); \
	} \
	KERNEL(rnn_grad_##S) \
	extern "C" __global__ void rnn_grad_reset_##S(i64 n, i64 units, const Wide<T>::type *dq, const u8 *mask, Wide<T>::type *pass, const T *before, const T *saved, T *z, T *joined) { \
		rnn_grad_reset(n, units, dq, mask, pass, before, saved, z, joined); \
	} \
	KERNEL(rnn_grad_reset_##S) \
	extern "C" __global__ void rnn_grad_end_##S(i64 n, i64 units, i64 begin, i64 adds, const T *last, const T *last_state, const Wide<T>::type *products, const u8 *mask, const Wide<T>::type *pass, const Wide<T>::type *carry, i64 type, void *out, void *state) { \
		rnn_grad_end(n, units, begin, adds, last, last_state, products, mask, pass, carry, type, out, state); \
	} \
	KERNEL(rnn_grad_end_##S)
FOR_FLOATS(RECURRENT)
