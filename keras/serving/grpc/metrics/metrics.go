// Package metrics has Prometheus metrics of a [serving.Server].
//
//	m := metrics.New(s)
//	registry := prometheus.NewRegistry()
//	registry.MustRegister(m)
//	http.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
//
// Requests:
//
//	mezzo_requests_total{model, version, protocol, code}    answered or refused; code is an HTTP status
//	mezzo_request_duration_seconds{model, protocol}         with reading the request and making the answer
//	mezzo_request_rows_total{model, version}                rows of the requests that were answered
//	mezzo_queue_duration_seconds{model, version}            from the arrival to the start of the computation
//	mezzo_queue_requests{model, version}                    that wait now
//
// Batches:
//
//	mezzo_batch_rows{model, version}                        rows that are computed together
//	mezzo_batch_padding_rows_total{model, version}          rows that are computed and not sent
//	mezzo_compute_duration_seconds{model, version}          of a batch
//	mezzo_batch_failures_total{model, version}
//
// Models:
//
//	mezzo_ready                                             1 while the server has a model and does not drain
//	mezzo_model_weights_bytes{model, version}
//	mezzo_model_loads_total{model, result}                  of watched directories; result is ok or error
//	mezzo_model_load_duration_seconds{model, version}       of the last load
//
// Requests for models that there are not have the model "" and the version 0.
package metrics

import (
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mezzo-ml/mezzo/keras/serving"
)

// Metrics is a prometheus.Collector of a server. Make it with New.
type Metrics struct {
	server *serving.Server

	requests, rows, padding, failures, loads *prometheus.CounterVec
	total, queued, computed, batch           *prometheus.HistogramVec
	took                                     *prometheus.GaugeVec
	ready, waiting, weights                  *prometheus.Desc
}

// New sets the Observe, Batched and Loaded of a server, before its first model, and
// returns its metrics. What they were before is called, too.
func New(s *serving.Server) *Metrics {
	perVersion := []string{"model", "version"}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	}
	seconds := prometheus.ExponentialBuckets(100e-6, 2, 16) // 100 µs to 3.3 s
	m := &Metrics{
		server:   s,
		requests: counter("mezzo_requests_total", "Inference requests that were answered or refused, by HTTP status.", "model", "version", "protocol", "code"),
		total:    histogram("mezzo_request_duration_seconds", "Time of inference requests, with reading the request and making the answer.", seconds, "model", "protocol"),
		rows:     counter("mezzo_request_rows_total", "Rows of inference requests that were answered.", perVersion...),
		queued:   histogram("mezzo_queue_duration_seconds", "Time from the arrival of a request to the start of its computation.", seconds, perVersion...),
		batch:    histogram("mezzo_batch_rows", "Rows that are computed together, without padding.", prometheus.ExponentialBuckets(1, 2, 11), perVersion...),
		padding:  counter("mezzo_batch_padding_rows_total", "Rows that are computed and not sent.", perVersion...),
		computed: histogram("mezzo_compute_duration_seconds", "Time of the computation of a batch.", seconds, perVersion...),
		failures: counter("mezzo_batch_failures_total", "Batches whose computation failed.", perVersion...),
		loads:    counter("mezzo_model_loads_total", "Versions of watched directories that were loaded, or could not be.", "model", "result"),
		took:     prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mezzo_model_load_duration_seconds", Help: "Time to load and compile a version."}, perVersion),
		ready:    prometheus.NewDesc("mezzo_ready", "1 while the server has a model and does not drain.", nil, nil),
		waiting:  prometheus.NewDesc("mezzo_queue_requests", "Requests that wait for a version.", perVersion, nil),
		weights:  prometheus.NewDesc("mezzo_model_weights_bytes", "Bytes of the weights of a version.", perVersion, nil),
	}
	observe, batched, loaded := s.Observe, s.Batched, s.Loaded
	s.Observe = func(o serving.Observation) {
		m.observe(o)
		if observe != nil {
			observe(o)
		}
	}
	s.Batched = func(b serving.Batch) {
		m.batched(b)
		if batched != nil {
			batched(b)
		}
	}
	s.Loaded = func(e serving.LoadEvent) {
		m.loaded(e)
		if loaded != nil {
			loaded(e)
		}
	}
	return m
}

func (m *Metrics) observe(o serving.Observation) {
	version := strconv.Itoa(o.Version)
	m.requests.WithLabelValues(o.Model, version, o.Protocol, strconv.Itoa(o.Status)).Inc()
	m.total.WithLabelValues(o.Model, o.Protocol).Observe(o.Total.Seconds())
	if o.Err == nil {
		m.rows.WithLabelValues(o.Model, version).Add(float64(o.Rows))
	}
	if o.Batch > 0 {
		m.queued.WithLabelValues(o.Model, version).Observe(o.Queued.Seconds())
	}
}

func (m *Metrics) batched(b serving.Batch) {
	version := strconv.Itoa(b.Version)
	m.batch.WithLabelValues(b.Model, version).Observe(float64(b.Rows))
	m.padding.WithLabelValues(b.Model, version).Add(float64(b.Padded - b.Rows))
	m.computed.WithLabelValues(b.Model, version).Observe(b.Computed.Seconds())
	if b.Err != nil {
		m.failures.WithLabelValues(b.Model, version).Inc()
	}
}

func (m *Metrics) loaded(e serving.LoadEvent) {
	version := strconv.Itoa(e.Version)
	switch {
	case e.Removed:
		// A directory gets new versions for ever, and a series for each stays.
		for _, v := range []interface {
			DeletePartialMatch(prometheus.Labels) int
		}{m.requests, m.rows, m.queued, m.batch, m.padding, m.computed, m.failures, m.took} {
			v.DeletePartialMatch(prometheus.Labels{"model": e.Model, "version": version})
		}
	case e.Err != nil:
		m.loads.WithLabelValues(e.Model, "error").Inc()
	default:
		m.loads.WithLabelValues(e.Model, "ok").Inc()
		m.took.WithLabelValues(e.Model, version).Set(e.Took.Seconds())
	}
}

func (m *Metrics) vectors() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.total, m.rows, m.queued, m.batch, m.padding, m.computed, m.failures, m.loads, m.took}
}

// Describe implements prometheus.Collector.
func (m *Metrics) Describe(c chan<- *prometheus.Desc) {
	for _, v := range m.vectors() {
		v.Describe(c)
	}
	c <- m.ready
	c <- m.waiting
	c <- m.weights
}

// Collect implements prometheus.Collector.
func (m *Metrics) Collect(c chan<- prometheus.Metric) {
	for _, v := range m.vectors() {
		v.Collect(c)
	}
	ready := 0.0
	if m.server.Ready() {
		ready = 1
	}
	c <- prometheus.MustNewConstMetric(m.ready, prometheus.GaugeValue, ready)
	for _, l := range m.server.Loads() {
		version := strconv.Itoa(l.Version)
		c <- prometheus.MustNewConstMetric(m.waiting, prometheus.GaugeValue, float64(l.Queued), l.Model, version)
		c <- prometheus.MustNewConstMetric(m.weights, prometheus.GaugeValue, float64(l.Bytes), l.Model, version)
	}
}
