package platformfake

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// door is where a server listens: a port that stays its own while nothing listens on it.
type door struct {
	handler http.Handler
	address string
	port    *os.File // bound, never listening

	mu     sync.Mutex
	server *http.Server // nil: down
	done   sync.WaitGroup
}

// openDoor takes a free port of the loopback interface and listens on it.
func openDoor(handler http.Handler) (*door, error) {
	d := &door{handler: handler}
	port, err := d.reserve()
	if err != nil {
		return nil, fmt.Errorf("reserve a port: %w", err)
	}
	d.address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	return d, d.open()
}

// reserve binds a port without listening, so that connections are refused and no other process gets it.
func (d *door) reserve() (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return 0, err
	}
	syscall.CloseOnExec(fd)
	d.port = os.NewFile(uintptr(fd), "reserved port")
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return 0, err
	}
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, err
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	address, ok := name.(*syscall.SockaddrInet4)
	if !ok {
		return 0, errors.New("the port has no address")
	}
	return address.Port, nil
}

func (d *door) open() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server != nil {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", d.address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: d.handler, ReadHeaderTimeout: time.Minute}
	d.server = server
	d.done.Go(func() { _ = server.Serve(listener) })
	return nil
}

// shut cuts all connections and refuses new ones.
func (d *door) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.server == nil {
		return
	}
	_ = d.server.Close()
	d.server = nil
	d.done.Wait()
}

func (d *door) close() {
	d.shut()
	_ = d.port.Close()
}
