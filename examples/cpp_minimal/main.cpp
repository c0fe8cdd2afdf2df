// Muon in a plain LibTorch program. Two lines differ from the program with torch::optim::AdamW:
// those under a comment that begins with "AdamW:", which shows what stood there.
#include <torch/nn/functional/activation.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/serialize.h>

#include <cstdio>
#include <filesystem>

// AdamW: #include <torch/optim/adamw.h>
#include "muoncore/optim/muon.h"

namespace nn = torch::nn;

// Fits a fixed random linear map of 32 features; returns the last loss.
static double train(nn::Sequential& net, torch::optim::Optimizer& optimizer, const at::Tensor& x,
                    const at::Tensor& y, int steps) {
  double loss_value = 0;
  for (int step = 0; step < steps; ++step) {
    optimizer.zero_grad();
    at::Tensor loss = (net->forward(x) - y).square().mean();
    loss.backward();
    optimizer.step();
    loss_value = loss.item<double>();
  }
  return loss_value;
}

static nn::Sequential make_net() {
  return nn::Sequential(nn::Linear(nn::LinearOptions(32, 64).bias(false)), nn::GELU(),
                        nn::Linear(nn::LinearOptions(64, 16).bias(false)));
}

static bool same_weights(const nn::Sequential& a, const nn::Sequential& b) {
  const auto left = a->parameters(), right = b->parameters();
  for (size_t i = 0; i < left.size(); ++i)
    if (!left[i].equal(right[i])) return false;
  return left.size() == right.size();
}

int main() {
  torch::manual_seed(0);
  at::Tensor x = torch::randn({256, 32});
  at::Tensor y = torch::matmul(x, torch::randn({32, 16}) / 32);

  nn::Sequential net = make_net();
  // AdamW: torch::optim::AdamW optimizer(net->parameters(), torch::optim::AdamWOptions(4e-3));
  muoncore::optim::Muon optimizer(net->parameters(), muoncore::optim::MuonOptions(4e-3));
  double before = train(net, optimizer, x, y, 1);
  double after = train(net, optimizer, x, y, 200);
  std::printf("loss %.4f -> %.6f\n", before, after);

  // Save and load through torch's archives; the copy goes on exactly as the original does. Its
  // options come from the archive too.
  auto folder = std::filesystem::temp_directory_path() / "muoncore_cpp_minimal";
  std::filesystem::create_directories(folder);
  torch::save(net, (folder / "net.pt").string());
  torch::save(optimizer, (folder / "optimizer.pt").string());
  nn::Sequential copy = make_net();
  torch::load(copy, (folder / "net.pt").string());
  decltype(optimizer) copied(copy->parameters());
  torch::load(copied, (folder / "optimizer.pt").string());
  double original = train(net, optimizer, x, y, 10), resumed = train(copy, copied, x, y, 10);
  const bool same = original == resumed && same_weights(net, copy);
  std::printf("10 steps more: %.9f, and from the archive: %.9f, weights %s\n", original, resumed,
              same ? "equal" : "different");
  std::filesystem::remove_all(folder);
  return after < before / 10 && same ? 0 : 1;
}
