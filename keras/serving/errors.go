package serving

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/mezzo-ml/mezzo/backend/driver"
	"github.com/mezzo-ml/mezzo/keras"
)

// Error is why a request was not answered, with the HTTP status that says whose
// fault it is.
type Error struct {
	Status int   // http.StatusBadRequest, NotFound, TooManyRequests, InternalServerError …
	Err    error // names the model and the input; what was given and what was wanted
}

// Error returns the text that the client gets.
func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

func errorf(status int, format string, args ...any) *Error {
	return &Error{status, fmt.Errorf(format, args...)}
}

func badRequest(format string, args ...any) *Error {
	return errorf(http.StatusBadRequest, format, args...)
}

// statusClientClosed is nginx's status for a client that did not wait.
const statusClientClosed = 499

// StatusOf returns the HTTP status of an error of Infer: that of an *Error, 504
// for a deadline, 499 for a cancelled context, else 500.
func StatusOf(err error) int {
	var e *Error
	switch {
	case errors.As(err, &e):
		return e.Status
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		return statusClientClosed
	}
	return http.StatusInternalServerError
}

// ofPredict gives an error of Predict its status: an index out of range is the
// client's.
func ofPredict(err error) *Error {
	var index *driver.IndexError
	var memory *keras.MemoryError
	switch {
	case errors.As(err, &index):
		return &Error{http.StatusBadRequest, err}
	case errors.As(err, &memory):
		return &Error{http.StatusServiceUnavailable, err}
	}
	return &Error{http.StatusInternalServerError, err}
}

// PanicError is the cause of an Error of status 500 if the model panicked. The
// client is told that it did, and nothing more.
type PanicError struct {
	Value any    // of the panic
	Stack []byte // of its goroutine
}

// Error says that the model panicked.
func (e *PanicError) Error() string { return "the model panicked; see the server's log" }
