// The key-value store through which ranks find one another: c10d's, behind plain text. Thread-safe.
// Everything throws Error naming the store when it cannot be reached.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace muoncore::comm {

class Store {
 public:
  struct Impl;  // store_impl.h

  // In this process, for tests.
  static Store in_process();
  // A server on `port` (0: any that is free) and a connection to it. It ends with the last copy.
  static Store serve(int port);
  // Waits up to `timeout` for the server to be there.
  static Store connect(const std::string& host, int port, std::chrono::milliseconds timeout);

  int port() const;                    // 0 in process
  const std::string& address() const;  // "host:port", for errors
  // The same keys under a prefix, over the same connection.
  Store prefixed(const std::string& prefix) const;
  // The same keys over a connection of its own: a call that waits holds up no other's.
  Store clone() const;

  void set(const std::string& key, const std::string& value);
  std::optional<std::string> try_get(const std::string& key);
  // Values of keys that are there; missing ones are waited for.
  std::vector<std::string> get_all(const std::vector<std::string>& keys);
  bool has_all(const std::vector<std::string>& keys);
  // Adds to a number (0 at first) and returns it.
  int64_t add(const std::string& key, int64_t amount);
  // Returns what is there afterwards. value: not empty.
  std::string set_if_absent(const std::string& key, const std::string& value);

  const Impl& impl() const { return *impl_; }

 private:
  explicit Store(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  std::shared_ptr<Impl> impl_;
};

}  // namespace muoncore::comm
