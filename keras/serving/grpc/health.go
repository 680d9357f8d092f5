package servinggrpc

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/mezzo-ml/mezzo/keras/serving"
)

// RegisterHealth adds grpc.health.v1.Health, which Kubernetes and load balancers ask:
// the server, "", and each service of Register are SERVING while s is ready, and
// NOT_SERVING before its first model and after Drain. A Watch ends with UNAVAILABLE
// after Drain, since grpc.Server.GracefulStop waits for it.
func RegisterHealth(g grpc.ServiceRegistrar, s *serving.Server) {
	grpc_health_v1.RegisterHealthServer(g, &health{s: s})
}

type health struct {
	grpc_health_v1.UnimplementedHealthServer
	s *serving.Server
}

// healthPoll is how often a Watch looks.
const healthPoll = 100 * time.Millisecond

// services are those that have a status; "" is the server.
var services = []string{"", oipService, tfService, modelService}

func (h *health) status(service string) *grpc_health_v1.HealthCheckResponse {
	answer := &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING}
	switch {
	case !slices.Contains(services, service):
		answer.Status = grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN
	case h.s.Ready():
		answer.Status = grpc_health_v1.HealthCheckResponse_SERVING
	}
	return answer
}

// Check answers for a service.
func (h *health) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	answer := h.status(r.GetService())
	if answer.Status == grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN {
		return nil, status.Error(codes.NotFound, "unknown service")
	}
	return answer, nil
}

// List answers for all services.
func (h *health) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	all := map[string]*grpc_health_v1.HealthCheckResponse{}
	for _, service := range services {
		all[service] = h.status(service)
	}
	return &grpc_health_v1.HealthListResponse{Statuses: all}, nil
}

// Watch answers when the status of a service changes.
func (h *health) Watch(r *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	tick := time.NewTicker(healthPoll)
	defer tick.Stop()
	told := grpc_health_v1.HealthCheckResponse_UNKNOWN
	for {
		if now := h.status(r.GetService()); now.Status != told {
			if err := stream.Send(now); err != nil {
				return err
			}
			told = now.Status
		}
		if h.s.Draining() {
			return status.Error(codes.Unavailable, "the server ends")
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-tick.C:
		}
	}
}
