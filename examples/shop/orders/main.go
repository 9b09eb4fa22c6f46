// The shop's orders: counts them, under the headline of the catalogue. Calls that through the gateway and passes lane, baggage and
// trace context on. Standard library only.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"
)

var count atomic.Int64

var passedOn = []string{"towpath-lane", "baggage", "traceparent", "tracestate", "x-request-id"}

var client = &http.Client{Timeout: 2 * time.Second}

// setting is an environment variable, or what stands in for it outside the platform.
func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// served says who answered: lane, and the end of the instance's id.
func served() map[string]string {
	instance := setting("TOWPATH_INSTANCE", "-")
	if len(instance) > 6 {
		instance = instance[len(instance)-6:]
	}
	return map[string]string{"lane": setting("TOWPATH_LANE", "base"), "instance": instance}
}

// call asks another service of the shop; an error becomes part of the answer, not a failure of it.
func call(service, path string, asked *http.Request) map[string]any {
	failed := func(err any) map[string]any { return map[string]any{"error": fmt.Sprint(service, ": ", err)} }
	request, err := http.NewRequestWithContext(asked.Context(), http.MethodGet, setting("TOWPATH_GATEWAY", "http://127.0.0.1:8080")+path, nil)
	if err != nil {
		return failed(err)
	}
	request.Host = service + "." + setting("TOWPATH_DOMAIN", "localhost")
	for _, name := range passedOn {
		for _, value := range asked.Header.Values(name) {
			request.Header.Add(name, value)
		}
	}
	answer, err := client.Do(request)
	if err != nil {
		return failed(err)
	}
	defer answer.Body.Close()
	if answer.StatusCode >= 400 {
		return failed(answer.Status)
	}
	var found map[string]any
	if err := json.NewDecoder(answer.Body).Decode(&found); err != nil {
		return failed(err)
	}
	return found
}

// counted answers with how many orders there are, and nothing of others.
func counted(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"count": count.Load(), "served": served()})
}

func orders(w http.ResponseWriter, r *http.Request) {
	status, now := http.StatusOK, count.Load()
	switch r.Method {
	case http.MethodPost:
		status, now = http.StatusCreated, count.Add(1)
	case http.MethodGet, http.MethodHead:
	default:
		http.Error(w, "GET or POST", http.StatusMethodNotAllowed)
		return
	}
	catalogue := call("catalogue", "/headline", r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"count": now, "catalogue": catalogue, "served": served()})
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/orders", orders)
	mux.HandleFunc("/count", counted)
	server := &http.Server{Addr: ":" + setting("PORT", "8002"), Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 90 * time.Second}

	stop, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	go func() {
		<-stop.Done()
		deadline, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(deadline)
	}()

	fmt.Println("orders listens on", server.Addr)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		log.Fatal(err)
	}
}
