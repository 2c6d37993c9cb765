// Filter the luma of a Y4M of 8 bits, 4:2:0, with a network that `codecnn export` has written as ONNX:
//     filter_y4m NETWORK.onnx QP IN.y4m OUT.y4m
// The network takes the planes rec_y and qp; what else the program must know is in the metadata of the file.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <onnxruntime_cxx_api.h>

class LumaFilter {
public:
    LumaFilter(const char* path, int qp) : session_(env_, path, options()) {
        const std::string range = metadata("qp_range");
        const int lowest = std::atoi(range.c_str()), highest = std::atoi(range.c_str() + range.find(',') + 1);
        qp_ = static_cast<float>(std::clamp(qp, lowest, highest)) / 64;
        halo_ = std::stoi(metadata("halo"));
        stride_ = std::stoi(metadata("stride"));
        if (metadata("planes") != "rec_y" || session_.GetInputCount() != 2 || session_.GetOutputCount() != 1)
            throw std::runtime_error("the network takes other planes than rec_y and qp");
        const std::string bits = metadata("bit_depth");  // integers only
        if (!bits.empty() && bits != "8")
            throw std::runtime_error("the integers are for " + bits + " bits: export them with --bit-depth 8");
    }

    // Replace the samples of a plane of width x height by the filtered ones.
    void operator()(std::vector<uint8_t>& plane, int width, int height) {
        const int columns = padded(width), rows = padded(height);
        std::vector<float> input(static_cast<size_t>(rows) * columns);
        for (int y = 0; y < rows; ++y)  // samples of the edge are repeated on all sides
            for (int x = 0; x < columns; ++x)
                input[static_cast<size_t>(y) * columns + x] =
                    plane[static_cast<size_t>(std::clamp(y - halo_, 0, height - 1)) * width +
                          std::clamp(x - halo_, 0, width - 1)] / 256.0f;
        const std::array<int64_t, 4> shape{1, 1, rows, columns}, one{1, 1, 1, 1};
        const auto memory = Ort::MemoryInfo::CreateCpu(OrtArenaAllocator, OrtMemTypeDefault);
        std::array<Ort::Value, 2> inputs{
            Ort::Value::CreateTensor<float>(memory, input.data(), input.size(), shape.data(), shape.size()),
            Ort::Value::CreateTensor<float>(memory, &qp_, 1, one.data(), one.size())};
        const std::array<const char*, 2> input_names{"rec_y", "qp"};
        const std::array<const char*, 1> output_names{"y"};
        const auto outputs = session_.Run(Ort::RunOptions{}, input_names.data(), inputs.data(), 2, output_names.data(), 1);
        const float* filtered = outputs[0].GetTensorData<float>();  // without the halo, with the padding of the stride
        for (int y = 0; y < height; ++y)
            for (int x = 0; x < width; ++x)  // halves are rounded to even, as codecnn rounds
                plane[static_cast<size_t>(y) * width + x] = static_cast<uint8_t>(std::clamp(
                    std::nearbyint(filtered[static_cast<size_t>(y) * (columns - 2 * halo_) + x] * 256.0f), 0.0f, 255.0f));
    }

private:
    static Ort::SessionOptions options() {
        Ort::SessionOptions options;
        options.SetIntraOpNumThreads(1);
        return options;
    }

    std::string metadata(const char* key) {
        Ort::AllocatorWithDefaultOptions allocator;
        const auto value = session_.GetModelMetadata().LookupCustomMetadataMapAllocated(key, allocator);
        return value ? value.get() : "";
    }

    int padded(int side) const { return (side + stride_ - 1) / stride_ * stride_ + 2 * halo_; }

    Ort::Env env_{ORT_LOGGING_LEVEL_WARNING, "filter_y4m"};
    Ort::Session session_;
    int halo_ = 0, stride_ = 1;
    float qp_ = 0;
};

int main(int count, char** arguments) try {
    if (count != 5) throw std::runtime_error("usage: filter_y4m NETWORK.onnx QP IN.y4m OUT.y4m");
    LumaFilter filter(arguments[1], std::atoi(arguments[2]));
    std::ifstream in(arguments[3], std::ios::binary);
    std::ofstream out(arguments[4], std::ios::binary);
    std::string line;
    if (!out || !std::getline(in, line) || line.rfind("YUV4MPEG2", 0) != 0)
        throw std::runtime_error("the input is not a Y4M, or the output cannot be written");
    const size_t place = line.find(" C");
    const std::string chroma = place == std::string::npos ? "420" : line.substr(place + 2, line.find(' ', place + 2) - place - 2);
    if (chroma != "420" && chroma != "420jpeg" && chroma != "420mpeg2" && chroma != "420paldv")
        throw std::runtime_error("the Y4M is not of 8 bits, 4:2:0");
    const int width = std::atoi(line.c_str() + line.find(" W") + 2), height = std::atoi(line.c_str() + line.find(" H") + 2);
    out << line << '\n';
    std::vector<uint8_t> luma(static_cast<size_t>(width) * height);
    std::vector<char> rest(static_cast<size_t>((width + 1) / 2) * ((height + 1) / 2) * 2);
    while (std::getline(in, line)) {  // FRAME
        in.read(reinterpret_cast<char*>(luma.data()), static_cast<std::streamsize>(luma.size()));
        if (!in.read(rest.data(), static_cast<std::streamsize>(rest.size()))) throw std::runtime_error("a picture is cut short");
        filter(luma, width, height);
        out << line << '\n';
        out.write(reinterpret_cast<const char*>(luma.data()), static_cast<std::streamsize>(luma.size()));
        out.write(rest.data(), static_cast<std::streamsize>(rest.size()));
    }
    if (!out.flush()) throw std::runtime_error("the output cannot be written");
    return 0;
} catch (const std::exception& error) {
    std::cerr << "filter_y4m: " << error.what() << '\n';
    return 1;
}
