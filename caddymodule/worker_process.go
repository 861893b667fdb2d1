package caddymodule

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/caddyserver/caddy/v2"
)

// RunWorker runs a worker with the server's configuration, in Caddy's JSON form, until ctx ends, and then until the worker
// has stopped. It may be called once per process, which is expected to end after it. Errors call the configuration name.
func RunWorker(ctx context.Context, server []byte, name string) error {
	configuration, err := workerConfig(server, name)
	if err != nil {
		return err
	}
	if err := requireFreeListener(server); err != nil {
		return fmt.Errorf("%s: svc.worker.listen: %w", name, err)
	}
	if err := caddy.Load(configuration, true); err != nil {
		return fmt.Errorf("starting the worker: %w", err)
	}
	found, err := caddy.ActiveContext().AppIfConfigured(workerAppName)
	worker, ok := found.(*WorkerApp)
	if err != nil || !ok {
		return errors.Join(fmt.Errorf("the worker's app is a %T", found), err, caddy.Stop())
	}
	select {
	case <-ctx.Done():
		caddy.Log().Named(workerAppName).Info("stopping: conversations that are being answered may finish")
	case <-worker.ended:
	}
	beginExit()
	err = caddy.Stop()
	endExit()
	return errors.Join(worker.err, err)
}

// workerConfig returns the configuration of a worker's process, made of the server's: the app svc unchanged, the worker,
// and its private listener if the worker block names one. Sites, certificates and the admin interface are left out.
func workerConfig(server []byte, name string) ([]byte, error) {
	var config struct {
		Logging map[string]json.RawMessage `json:"logging"`
		Apps    map[string]json.RawMessage `json:"apps"`
	}
	if err := json.Unmarshal(caddy.RemoveMetaFields(server), &config); err != nil {
		return nil, fmt.Errorf("%s is no Caddy configuration: %w", name, err)
	}
	app, err := readApp(config.Apps, name)
	if err != nil {
		return nil, err
	}
	grace, err := gracePeriod(config.Apps["http"])
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	logging, err := workerLogging(config.Logging)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	apps := map[string]any{
		appName:       config.Apps[appName],
		workerAppName: &WorkerApp{GracePeriod: grace},
	}
	if address := valueOr(app.Worker, Worker{}).Listen; address != "" {
		apps["http"] = privateListener(address)
		// The certificates in the storage are the server's to look after.
		apps["tls"] = map[string]any{"disable_storage_clean": true}
	}
	return json.Marshal(map[string]any{
		"admin":   map[string]any{"disabled": true, "config": map[string]any{"persist": false}},
		"logging": logging,
		"apps":    apps,
	})
}

// requireFreeListener fails if the worker's listener overlaps with one of the server's, or another process listens there: both would
// share the requests. server was read before.
func requireFreeListener(server []byte) error {
	var config struct {
		Admin struct {
			Listen   string `json:"listen"`
			Disabled bool   `json:"disabled"`
		} `json:"admin"`
		Apps struct {
			Svc struct {
				Worker *Worker `json:"worker"`
			} `json:"svc"`
			HTTP struct {
				Servers map[string]struct {
					Listen []string `json:"listen"`
				} `json:"servers"`
			} `json:"http"`
		} `json:"apps"`
	}
	if err := json.Unmarshal(caddy.RemoveMetaFields(server), &config); err != nil {
		return fmt.Errorf("finding the listeners of the configuration: %w", err)
	}
	listen := valueOr(config.Apps.Svc.Worker, Worker{}).Listen
	if listen == "" {
		return nil
	}
	worker, err := caddy.ParseNetworkAddress(listen)
	if err != nil {
		return err
	}
	others := map[string]string{}
	if !config.Admin.Disabled {
		others[cmp.Or(config.Admin.Listen, caddy.DefaultAdminListen)] = "Caddy's admin interface"
	}
	for _, server := range config.Apps.HTTP.Servers {
		for _, address := range server.Listen {
			others[address] = "a site"
		}
	}
	for _, address := range slices.Sorted(maps.Keys(others)) {
		if other, err := caddy.ParseNetworkAddress(address); err == nil && overlap(worker, other) {
			return fmt.Errorf("%s is also the address of %s (%s), which would lose a part of its requests to the worker; "+
				"give the worker another port", listen, others[address], address)
		}
	}
	if err := taken(listen); err != nil {
		return fmt.Errorf("%w. Stop it, or give the worker another port", err)
	}
	return nil
}

// gracePeriod returns how long the server's http app waits when it stops, 0 if the configuration doesn't say.
func gracePeriod(site json.RawMessage) (caddy.Duration, error) {
	if site == nil {
		return 0, nil
	}
	var options struct {
		GracePeriod caddy.Duration `json:"grace_period"`
	}
	if err := json.Unmarshal(site, &options); err != nil {
		return 0, fmt.Errorf("the grace_period of the http app: %w", err)
	}
	return options.GracePeriod, nil
}

// workerLogging returns the server's logging without its files, because two processes that roll one file lose lines. The
// default log goes to standard error instead of its file. Other logs with files, such as those of sites, are left out.
func workerLogging(server map[string]json.RawMessage) (map[string]json.RawMessage, error) {
	raw, given := server["logs"]
	if !given {
		return server, nil
	}
	var logs map[string]map[string]json.RawMessage
	if err := json.Unmarshal(raw, &logs); err != nil {
		return nil, fmt.Errorf("the logs: %w", err)
	}
	for name, log := range logs {
		var writer struct {
			Output string `json:"output"`
		}
		if log["writer"] == nil {
			continue
		}
		if err := json.Unmarshal(log["writer"], &writer); err != nil {
			return nil, fmt.Errorf("the writer of the log %s: %w", name, err)
		}
		switch {
		case writer.Output != "file":
		case name == "default":
			delete(log, "writer")
		default:
			delete(logs, name)
		}
	}
	kept, err := json.Marshal(logs)
	if err != nil {
		return nil, fmt.Errorf("the logs: %w", err)
	}
	logging := maps.Clone(server)
	logging["logs"] = kept
	return logging, nil
}

// privateListener returns the http app of a worker: probes and metrics, for the operator only.
func privateListener(address string) map[string]any {
	type object = map[string]any
	handle := func(handler string) []object { return []object{{"handler": handler}} }
	failed := []object{{"handle": handle("svc_error")}}
	return object{"grace_period": "5s", "servers": object{"worker": object{
		"listen":          []string{address},
		"automatic_https": object{"disable": true},
		"protocols":       []string{"h1"},
		"routes": []object{
			{"match": []object{{"path": []string{"/metrics"}}}, "handle": handle("metrics"), "terminal": true},
			{"match": []object{{"path": []string{"/health/*"}}}, "handle": handle("svc_health"), "terminal": true},
			failed[0],
		},
		"errors": object{"routes": failed},
	}}}
}
