package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-sim/sluice/gateway/fakevllm"
)

// engineReplica is one server of sluice engine.
type engineReplica struct {
	engine   *fakevllm.Server
	listener net.Listener
	http     *http.Server
}

// serve runs the servers until the command is interrupted.
func (f *engineFlags) serve(cmd *cobra.Command, cfg fakevllm.Config) error {
	var all []*engineReplica
	defer func() {
		for _, r := range all {
			r.engine.Close()
			_ = r.listener.Close()
		}
	}()
	var lines strings.Builder
	for i := range f.replicas {
		r, err := f.replica(cfg, i)
		if err != nil {
			return badInput(err)
		}
		all = append(all, r)
		c := r.engine.Config()
		fmt.Fprintf(&lines, "sluice engine: %s on http://%s, %d KV blocks of %d tokens, longest context %d, speed %g\n",
			c.Name, r.listener.Addr(), c.Blocks, c.Engine.BlockTokens, c.Engine.MaxModelLen, c.Speed)
		if c.KVEvents != nil {
			events, replay := r.engine.KVEventAddrs()
			fmt.Fprintf(&lines, "sluice engine: KV events on %s, replay on %s\n", orNone(events), orNone(replay))
		}
	}
	if _, err := io.WriteString(cmd.OutOrStdout(), lines.String()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	ended := make(chan error, len(all))
	for _, r := range all {
		go func() {
			err := serveUntilDone(ctx, r.http, r.listener, f.drain)
			if err != nil {
				cancel() // all end with the first that fails
			}
			ended <- err
		}()
	}
	var errs []error
	for range all {
		errs = append(errs, <-ended)
	}
	return errors.Join(errs...)
}

// replica makes server number i: on the i-th port after the first, as its KV events are.
func (f *engineFlags) replica(cfg fakevllm.Config, i int) (*engineReplica, error) {
	port := f.port
	if port > 0 {
		port += i
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(f.host, strconv.Itoa(port)))
	if err != nil {
		return nil, fmt.Errorf("--host and --port: %w", err)
	}
	if cfg.KVEvents != nil {
		c := *cfg.KVEvents
		c.Endpoint, c.Replay = nthEndpoint(c.Endpoint, i), nthEndpoint(c.Replay, i)
		cfg.KVEvents = &c
	}
	engine, err := fakevllm.New(cfg)
	if err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return &engineReplica{engine, listener, &http.Server{Handler: engine, ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 64 << 10}}, nil
}

// nthEndpoint is an endpoint i ports further, as vLLM has it for data-parallel ranks. Port 0 stays.
func nthEndpoint(endpoint string, i int) string {
	at := strings.LastIndexByte(endpoint, ':')
	port, err := strconv.Atoi(endpoint[at+1:])
	if err != nil || port == 0 {
		return endpoint
	}
	return endpoint[:at+1] + strconv.Itoa(port+i)
}

// serveUntilDone serves until the context ends, then lets requests under way finish for at most drain.
func serveUntilDone(ctx context.Context, srv *http.Server, listener net.Listener, drain time.Duration) error {
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(listener) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	end, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	if err := srv.Shutdown(end); err != nil {
		_ = srv.Close()
		return fmt.Errorf("requests under way were cut after %v", drain)
	}
	return nil
}

// orNone is an address, or words for not having one.
func orNone(address string) string {
	if address == "" {
		return "no address of its own"
	}
	return address
}
