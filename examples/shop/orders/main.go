// The shop's orders: counts them. Standard library only.
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
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"count": now, "served": served()})
}

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/orders", orders)
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
