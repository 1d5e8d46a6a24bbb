package fakevllm

import (
	"fmt"
	"io"
	"net/http"
	"time"
)

// Faults are what is wrong with a server on purpose. The zero value is nothing.
type Faults struct {
	LatencyFactor   float64 `json:"latency_factor"`            // a step takes so many times longer; 0 is 1
	FailNext        int32   `json:"fail_next"`                 // so many requests for tokens fail
	FailStatus      int     `json:"fail_status"`               // with this status; 0 is 500
	DieNext         int32   `json:"die_next"`                  // so many requests for tokens lose their connection
	DieAfterTokens  int32   `json:"die_after_tokens"`          // after so many tokens; 0 is 1
	MetricsStatus   int     `json:"metrics_status"`            // /metrics answers with this status; 0 is as usual
	MetricsHang     bool    `json:"metrics_hang"`              // /metrics does not answer
	HealthStatus    int     `json:"health_status"`             // /health answers with this status; 0 is as usual
	ResidentHang    bool    `json:"resident_hang"`             // /sluice/resident does not answer
	ResidentStatus  int     `json:"resident_status"`           // /sluice/resident answers with this status; 0 is as usual
	LoseKVBatches   int     `json:"lose_kv_batches,omitempty"` // the next batches of KV events reach nobody; they can be replayed
	TokenizeHang    bool    `json:"tokenize_hang"`             // /tokenize and the render endpoints do not answer
	Down            bool    `json:"down"`                      // every connection is cut, but those to /fault
	RestartAfterSec float64 `json:"restart_after_s"`           // with Restart: down for so long, in real time
	Restart         bool    `json:"restart,omitempty"`         // restart now
}

func (f *Faults) factor() float64 {
	if f.LatencyFactor == 0 {
		return 1
	}
	return f.LatencyFactor
}

// check refuses what no server could have.
func (f *Faults) check() error {
	status := func(name string, n int) error {
		if n != 0 && (n < 200 || n > 599) {
			return fmt.Errorf("%s is %d; it must be 0 or a status from 200 to 599", name, n)
		}
		return nil
	}
	for _, err := range []error{status("fail_status", f.FailStatus), status("metrics_status", f.MetricsStatus),
		status("health_status", f.HealthStatus), status("resident_status", f.ResidentStatus)} {
		if err != nil {
			return err
		}
	}
	if !(f.LatencyFactor >= 0 && f.LatencyFactor <= 1e6) || f.FailNext < 0 || f.LoseKVBatches < 0 || f.DieNext < 0 || f.DieAfterTokens < 0 || !(f.RestartAfterSec >= 0 && f.RestartAfterSec <= 3600) {
		return fmt.Errorf("latency_factor must be 0 to 1e6, restart_after_s 0 to 3600, and counts not negative")
	}
	return nil
}

// Faults is what is wrong now.
func (s *Server) Faults() Faults {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faults
}

// SetFaults replaces what is wrong, and restarts the server if it says so.
func (s *Server) SetFaults(f Faults) error {
	if err := f.check(); err != nil {
		return err
	}
	restart := f.Restart
	f.Restart = false
	lose := f.LoseKVBatches
	f.LoseKVBatches = 0
	if restart && f.RestartAfterSec > 0 {
		f.Down = true
	}
	s.mu.Lock()
	s.faults = f
	c := s.core
	s.mu.Unlock()
	c.mu.Lock()
	c.factor = f.factor()
	c.mu.Unlock()
	if lose > 0 && s.publisher != nil {
		s.publisher.Lose(lose)
	}
	if !restart {
		return nil
	}
	s.Restart()
	if f.RestartAfterSec > 0 {
		time.AfterFunc(time.Duration(f.RestartAfterSec*1e9), func() {
			s.mu.Lock()
			s.faults.Down = false
			s.mu.Unlock()
		})
	}
	return nil
}

// setFaults is POST /fault: the fields given replace those in force.
func (s *Server) setFaults(w http.ResponseWriter, r *http.Request) {
	f := s.Faults()
	if p := s.read(w, r, &f); p != nil {
		p.write(w)
		return
	}
	if err := s.SetFaults(f); err != nil {
		badRequest("", "%v", err).write(w)
		return
	}
	writeJSON(w, http.StatusOK, s.Faults())
}

// requestFault is what goes wrong with one request.
type requestFault struct {
	status   int
	dieAfter int32
}

func (s *Server) takeFault() (x requestFault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := &s.faults
	switch {
	case f.FailNext > 0:
		f.FailNext--
		if x.status = f.FailStatus; x.status == 0 {
			x.status = http.StatusInternalServerError
		}
	case f.DieNext > 0:
		f.DieNext--
		x.dieAfter = max(f.DieAfterTokens, 1)
	}
	return x
}

// hang waits for the client to give up, or for the server to close.
func (s *Server) hang(r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body) // net/http sees a client go only behind the body
	select {
	case <-r.Context().Done():
	case <-s.gone:
	}
	panic(http.ErrAbortHandler)
}
