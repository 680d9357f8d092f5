package servinggrpc

import (
	"context"
	"errors"
	"log"
	"net/http"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec of messages
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/mezzo-ml/mezzo/keras"
	"github.com/mezzo-ml/mezzo/keras/serving"
)

// codec passes bytes on, and gives other messages, those of the health service for
// instance, to gRPC's codec of messages.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2("proto")} }

func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if b, ok := v.([]byte); ok {
		return mem.BufferSlice{mem.SliceBuffer(b)}, nil
	}
	return c.CodecV2.Marshal(v)
}

func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if b, ok := v.(*[]byte); ok {
		*b = data.Materialize() // gRPC uses the memory of data again
		return nil
	}
	return c.CodecV2.Unmarshal(data, v)
}

// ServerOptions returns the options that a grpc.Server needs for Register, its
// codec, and bounds for servers that everybody can reach: messages of at most 64 MiB,
// 1024 streams of a connection, 10 s for its start, and a ping of a client each 10 s.
// Options after them replace them; the codec must stay. Unary interceptors get the
// requests of Register's services as []byte.
func ServerOptions() []grpc.ServerOption {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(newCodec()),
		grpc.MaxRecvMsgSize(64 << 20),
		grpc.MaxConcurrentStreams(1024),
		grpc.ConnectionTimeout(10 * time.Second),
		// Clients of load balancers ping; those that do it too often are sent away.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		// A client that has gone without a word is found by a ping.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second}),
	}
}

// The services of Register.
const (
	oipService   = "inference.GRPCInferenceService"
	tfService    = "tensorflow.serving.PredictionService"
	modelService = "tensorflow.serving.ModelService"
)

// Register adds the Open Inference Protocol's GRPCInferenceService and TensorFlow
// Serving's PredictionService and ModelService to a grpc.Server that was made with
// ServerOptions. They answer with the models of s.
func Register(g grpc.ServiceRegistrar, s *serving.Server) {
	o, tf := oip{s}, tf{s}
	register(g, oipService, map[string]method{
		"ServerLive":     func(context.Context, []byte) (message, error) { return flagged(true), nil },
		"ServerReady":    func(context.Context, []byte) (message, error) { return flagged(s.Ready()), nil },
		"ServerMetadata": o.serverMetadata,
		"ModelReady":     o.modelReady,
		"ModelMetadata":  o.modelMetadata,
		"ModelInfer":     o.modelInfer,
	})
	register(g, tfService, map[string]method{
		"Predict":          tf.predict,
		"GetModelMetadata": tf.modelMetadata,
	})
	register(g, modelService, map[string]method{"GetModelStatus": tf.modelStatus})
}

// flagged is a message whose field 1 is a bool.
func flagged(v bool) (m message) {
	m.flag(1, v)
	return m
}

// method answers the bytes of a request with those of the answer.
type method func(ctx context.Context, request []byte) (message, error)

func register(g grpc.ServiceRegistrar, service string, methods map[string]method) {
	d := &grpc.ServiceDesc{ServiceName: service, HandlerType: (*any)(nil)}
	for name, f := range methods {
		info := &grpc.UnaryServerInfo{FullMethod: "/" + service + "/" + name}
		handle := func(ctx context.Context, request any) (answer any, err error) {
			defer func() {
				if p := recover(); p != nil { // gRPC lets it end the program
					log.Printf("%s: panic: %v\n%s", info.FullMethod, p, debug.Stack())
					err = status.Error(codes.Internal, "the server panicked; see its log")
				}
			}()
			m, err := f(ctx, request.([]byte))
			if err != nil {
				return nil, coded(err)
			}
			return []byte(m), nil
		}
		d.Methods = append(d.Methods, grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			var request []byte
			if err := decode(&request); err != nil {
				return nil, err
			}
			if interceptor == nil {
				return handle(ctx, request)
			}
			return interceptor(ctx, request, info, handle)
		}})
	}
	g.RegisterService(d, nil)
}

// invalid is an error of the client.
func invalid(err error) error { return &serving.Error{Status: http.StatusBadRequest, Err: err} }

// coded gives an error gRPC's code.
func coded(err error) error {
	var memory *keras.MemoryError
	c := codes.Internal
	switch serving.StatusOf(err) {
	case http.StatusBadRequest:
		c = codes.InvalidArgument
	case http.StatusNotFound:
		c = codes.NotFound
	case http.StatusTooManyRequests:
		c = codes.ResourceExhausted
	case http.StatusServiceUnavailable:
		c = codes.Unavailable
		if errors.As(err, &memory) {
			c = codes.ResourceExhausted
		}
	case http.StatusGatewayTimeout:
		c = codes.DeadlineExceeded
	case 499: // the client has gone
		c = codes.Canceled
	}
	return status.Error(c, err.Error())
}
