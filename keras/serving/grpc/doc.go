// Package servinggrpc answers gRPC requests with the models of a [serving.Server]:
// the Open Inference Protocol (KServe, Triton), TensorFlow Serving's
// PredictionService and ModelService, and gRPC's health service.
//
//	s := serving.New()
//	defer s.Close()
//	if err := s.Watch(ctx, "digits", "models/digits", serving.Options{}); err != nil {
//		return err
//	}
//	g := grpc.NewServer(servinggrpc.ServerOptions()...)
//	servinggrpc.Register(g, s)
//	servinggrpc.RegisterHealth(g, s)
//	return g.Serve(listener)
//
// It is a module of its own, so that programs without gRPC do not depend on gRPC.
// Package metrics in it has Prometheus metrics; command mezzo-serve is a whole
// server.
//
// # Methods
//
//	inference.GRPCInferenceService           ServerLive, ServerReady, ServerMetadata,
//	                                         ModelReady, ModelMetadata, ModelInfer
//	tensorflow.serving.PredictionService     Predict, GetModelMetadata
//	tensorflow.serving.ModelService          GetModelStatus
//	grpc.health.v1.Health                    Check, Watch, List
//
// Messages are those of open_inference_grpc.proto
// (github.com/kserve/open-inference-protocol) and of TensorFlow Serving's and
// TensorFlow's .proto files (github.com/tensorflow/serving, tensorflow_serving/apis,
// and tensorflow/core/framework). They are read and written field by field:
// generated code registers the names of its messages, and a program with two copies
// of a name ends when it starts. So a program may link clients of the same services.
//
// ModelInfer takes elements as raw_input_contents, or as the typed contents of each
// input; it answers with raw_output_contents, as Triton does. Parameters that ask
// for shared memory or classification are errors, others are ignored. Predict takes
// tensor_content, or typed values, of which the last stands for all that are left
// out, and no value for zeros; such a request has at most 4 MiB after that. It
// answers with typed values, as TensorFlow Serving does.
//
// # Errors
//
//	INVALID_ARGUMENT     the request: a message, a name, a type or a shape
//	NOT_FOUND            no such model, version or label
//	RESOURCE_EXHAUSTED   a full queue, too large a message, or no memory
//	DEADLINE_EXCEEDED    the deadline of the call
//	CANCELLED            the client has gone
//	UNAVAILABLE          the server is closed, or ends
//	INTERNAL             the model failed
//
// A request whose call has ended is not computed. Types and shapes are compared with
// the model before its values are read, so values take no more memory than the
// model's inputs of at most MaxBatch rows, or than the bytes that were sent.
package servinggrpc
