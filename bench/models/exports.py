# SPDX-License-Identifier: Apache-2.0
"""Networks as PyTorch's exporters write them, beside ONNX Runtime: do they load, are the values the same,
who is faster. Weights are random; sizes are the usual ones or, of language models, a few layers of them.

Usage: exports.py make DIR [NAME...]              torch with torchvision and transformers: writes DIR/NAME.onnx
       exports.py compare TACIT DIR [NAME...]     onnxruntime: prints a table of what is in DIR"""
import glob
import json
import os
import subprocess
import sys
import tempfile

RUNS = 15


# --- making -----------------------------------------------------------------------------------------

def networks():
    """Name: a function that gives a network, its inputs and what of its outputs is wanted."""
    import torch
    import torchvision.models as vision
    import transformers as hf

    def ids(length):
        return torch.randint(0, 1000, (1, length))

    def picture(size=224):
        return torch.randn(1, 3, size, size)

    def hidden(out):
        return out.last_hidden_state

    def logits(out):
        return out.logits

    def language(model, config, **more):
        sizes = dict(vocab_size=5000, hidden_size=512, num_hidden_layers=4, num_attention_heads=8)
        return lambda: (model(config(**{**sizes, **more})), (ids(64),), logits)

    def encoder(model, config, length=128, **more):
        return lambda: (model(config(vocab_size=5000, **more)), (ids(length),), hidden)

    def classifier(name, size=224, **more):
        return lambda: (getattr(vision, name)(weights=None, **more), (picture(size),), None)

    def segmenter(name):
        make = getattr(vision.segmentation, name)
        return lambda: (make(weights=None, weights_backbone=None), (picture(256),), lambda out: out["out"])

    def detector(name):
        make = getattr(vision.detection, name)
        return lambda: (make(weights=None, weights_backbone=None), ([torch.rand(3, 320, 320)],),
                        lambda out: (out[0]["boxes"], out[0]["scores"], out[0]["labels"]))

    def patches():  # whose head is zero before it is trained
        network = vision.vit_b_16(weights=None)
        torch.nn.init.normal_(network.heads.head.weight, std=0.02)
        return network, (picture(),), None

    gated = dict(intermediate_size=1376, num_key_value_heads=2, use_cache=False)
    layers = dict(num_hidden_layers=4)
    found = {
        "albert": encoder(hf.AlbertModel, hf.AlbertConfig, hidden_size=768, num_attention_heads=12,
                          intermediate_size=3072, **layers),
        "deberta-v2": encoder(hf.DebertaV2Model, hf.DebertaV2Config, hidden_size=384, num_attention_heads=6,
                              intermediate_size=1536, num_hidden_layers=3, relative_attention=True,
                              position_buckets=256, pos_att_type=["p2c", "c2p"]),
        "distilbert": encoder(hf.DistilBertModel, hf.DistilBertConfig, 64, n_layers=4),
        "electra": encoder(hf.ElectraModel, hf.ElectraConfig),
        "mpnet": encoder(hf.MPNetModel, hf.MPNetConfig, **layers),
        "t5-encoder": encoder(hf.T5EncoderModel, hf.T5Config, num_layers=4),
        "clip-text": encoder(hf.CLIPTextModel, hf.CLIPTextConfig, 77, eos_token_id=1, **layers),
        "bloom": language(hf.BloomForCausalLM, hf.BloomConfig, n_layer=4, n_head=8, use_cache=False),
        "gemma2": language(hf.Gemma2ForCausalLM, hf.Gemma2Config, head_dim=64, **gated),
        "gpt-neox": language(hf.GPTNeoXForCausalLM, hf.GPTNeoXConfig, intermediate_size=2048, use_cache=False),
        "llama": language(hf.LlamaForCausalLM, hf.LlamaConfig, **gated),
        "mamba": language(hf.MambaForCausalLM, hf.MambaConfig, hidden_size=256, num_hidden_layers=2,
                          use_cache=False),
        "phi": language(hf.PhiForCausalLM, hf.PhiConfig, intermediate_size=1376, use_cache=False),
        "qwen3": language(hf.Qwen3ForCausalLM, hf.Qwen3Config, head_dim=64, **gated),
        "mistral": language(hf.MistralForCausalLM, hf.MistralConfig, **gated),
        "rwkv": language(hf.RwkvForCausalLM, hf.RwkvConfig, attention_hidden_size=512, use_cache=False),
        "modernbert": encoder(hf.ModernBertModel, hf.ModernBertConfig, hidden_size=384, num_attention_heads=6,
                              intermediate_size=576, pad_token_id=0, bos_token_id=1, cls_token_id=1, eos_token_id=2,
                              sep_token_id=2, **layers),
        "bart": encoder(hf.BartModel, hf.BartConfig, 64, d_model=512, encoder_layers=3, decoder_layers=3,
                        encoder_ffn_dim=2048, decoder_ffn_dim=2048, encoder_attention_heads=8,
                        decoder_attention_heads=8, use_cache=False),
        "whisper-encoder": lambda: (hf.WhisperModel(hf.WhisperConfig(d_model=384, encoder_layers=2, decoder_layers=1,
                                                                     encoder_attention_heads=6)).encoder,
                                    (torch.randn(1, 80, 3000),), hidden),
        "hubert": lambda: (hf.HubertModel(hf.HubertConfig(num_hidden_layers=1)), (torch.randn(1, 16000),), hidden),
        "wav2vec2": lambda: (hf.Wav2Vec2Model(hf.Wav2Vec2Config(num_hidden_layers=2)), (torch.randn(1, 16000),),
                             hidden),
        "hifi-gan": lambda: (hf.SpeechT5HifiGan(hf.SpeechT5HifiGanConfig()), (torch.randn(40, 80),), None),
        "perceiver": lambda: (hf.PerceiverModel(hf.PerceiverConfig(
            d_model=128, num_latents=64, d_latents=256, num_self_attends_per_block=4)),
            (torch.randn(1, 256, 128),), hidden),
        "dinov2": lambda: (hf.Dinov2Model(hf.Dinov2Config(hidden_size=384, num_attention_heads=6, **layers)),
                           (picture(),), hidden),
        "dpt": lambda: (hf.DPTForDepthEstimation(hf.DPTConfig(
            hidden_size=384, num_attention_heads=6, intermediate_size=1536, backbone_out_indices=[0, 1, 2, 3],
            neck_hidden_sizes=[48, 96, 192, 384], **layers)), (picture(384),), lambda out: out.predicted_depth),
        "mobilevit": lambda: (hf.MobileViTModel(hf.MobileViTConfig(initializer_range=0.1)), (picture(256),), hidden),
        "poolformer": lambda: (hf.PoolFormerModel(hf.PoolFormerConfig()), (picture(),), hidden),
        "segformer": lambda: (hf.SegformerForSemanticSegmentation(hf.SegformerConfig()), (picture(256),), logits),
        "swin-v2": lambda: (hf.Swinv2Model(hf.Swinv2Config(depths=[2, 2, 2, 2])), (picture(),), hidden),
        "vit-b-16": patches,
        "vit": lambda: (hf.ViTModel(hf.ViTConfig(**layers)), (picture(),), hidden),
        "bit": lambda: (hf.BitModel(hf.BitConfig(depths=[2, 2, 2, 2])), (picture(),), hidden),
        "convnext-v2": lambda: (hf.ConvNextV2Model(hf.ConvNextV2Config(depths=[1, 1, 3, 1])), (picture(),), hidden),
        "detr": lambda: (hf.DetrForObjectDetection(hf.DetrConfig(
            use_timm_backbone=False, use_pretrained_backbone=False, backbone=None,
            backbone_config=hf.ResNetConfig(out_features=["stage4"]), encoder_layers=2, decoder_layers=2)),
            (picture(320),), lambda out: (out.logits, out.pred_boxes)),
        "sam-vision": lambda: (hf.SamVisionModel(hf.SamVisionConfig(
            num_hidden_layers=2, image_size=256, hidden_size=192, num_attention_heads=3, global_attn_indexes=[1],
            output_channels=64)), (picture(256),), hidden),
        "inception-v3": classifier("inception_v3", 299, aux_logits=False, init_weights=False),
        "googlenet": classifier("googlenet", aux_logits=False, init_weights=False),
        "r3d-18": lambda: (vision.video.r3d_18(weights=None), (torch.randn(1, 3, 8, 112, 112),), None),
        "raft-small": lambda: (vision.optical_flow.raft_small(weights=None),
                               (torch.randn(1, 3, 128, 128), torch.randn(1, 3, 128, 128)), lambda out: out[-1]),
    }
    for name in ("convnext_tiny densenet169 efficientnet_b0 efficientnet_v2_s maxvit_t mnasnet1_0 "
                 "mobilenet_v3_large mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 "
                 "resnext50_32x4d shufflenet_v2_x1_0 swin_t vgg11_bn wide_resnet50_2").split():
        found[name.replace("_", "-")] = classifier(name)
    for name in ("deeplabv3_mobilenet_v3_large", "fcn_resnet50", "lraspp_mobilenet_v3_large"):
        found[name.replace("_", "-")] = segmenter(name)
    for name in ("fasterrcnn_mobilenet_v3_large_320_fpn", "ssdlite320_mobilenet_v3_large"):
        found[name.replace("_", "-")] = detector(name)
    return found


def make(folder, names):
    import torch

    class Picked(torch.nn.Module):
        def __init__(self, network, pick):
            super().__init__()
            self.network, self.pick = network, pick or (lambda out: out)

        def forward(self, *inputs):
            return self.pick(self.network(*inputs))

    os.makedirs(folder, exist_ok=True)
    makers = networks()
    for name in names or sorted(makers):
        target = os.path.join(folder, name + ".onnx")
        if os.path.exists(target):
            continue
        torch.manual_seed(0)
        network, inputs, pick = makers[name]()
        network = Picked(network.eval().requires_grad_(False), pick)
        try:
            torch.onnx.export(network, inputs, target + ".part", dynamo=False, opset_version=17)
        except Exception:  # what the older exporter cannot write, the newer one may
            try:
                torch.onnx.export(network, inputs, target + ".part", dynamo=True, external_data=False,
                                  verbose=False)
            except Exception as why:
                print(f"{name}: cannot be exported: {str(why).splitlines()[0]}", file=sys.stderr)
                continue
        os.rename(target + ".part", target)
        print(target)


# --- comparing --------------------------------------------------------------------------------------

def feed_of(session, folder):
    """Inputs for ONNX Runtime, and the same as arguments for tacit."""
    import numpy
    rng = numpy.random.default_rng(1)
    feed, arguments = {}, []
    for i, given in enumerate(session.get_inputs()):
        if "int" in given.type:
            value = rng.integers(0, 100, given.shape)
        else:
            value = rng.standard_normal(given.shape, "f")
        path = os.path.join(folder, f"{i}.npy")
        numpy.save(path, value)
        feed[given.name] = value
        arguments += ["--input", f"{given.name}={path}"]
    return feed, arguments


def difference(folder, session, wanted):
    """The largest difference of any output, in parts of the largest value it has."""
    import numpy
    worst = 0.0
    for given, want in zip(session.get_outputs(), wanted):
        got = numpy.load(os.path.join(folder, given.name.replace("/", "_").replace(":", "_") + ".npy"))
        if got.shape != want.shape:
            return f"shape {got.shape}, not {want.shape}"
        if want.size:
            apart = numpy.abs(got.astype("d") - want.astype("d")).max()
            worst = max(worst, apart / (numpy.abs(want.astype("d")).max() or 1))
    return f"{worst:.0e}"


def compare_one(tacit, path):
    import onnxruntime
    onnxruntime.set_default_logger_severity(3)
    with tempfile.TemporaryDirectory() as folder:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        feed, arguments = feed_of(session, folder)
        wanted = session.run(None, feed)
        results = os.path.join(folder, "out")
        run = subprocess.run([tacit, "run", path, "--output", results] + arguments, capture_output=True, text=True)
        if run.returncode:
            return [run.stderr.strip()]
        cells = [difference(results, session, wanted)]
        del session
        for threads in ([], ["--exec", "tasks", "--threads", "2"]):
            bench = subprocess.run([tacit, "bench", path, "--vs", "ort", "--json", "--runs", str(RUNS)] +
                                   arguments + threads, capture_output=True, text=True)
            if bench.returncode:
                return cells + [bench.stderr.strip()]
            found = json.loads(bench.stdout)
            cells += [f"{found['median_ms']:.2f}", f"{found['ratio']:.2f}"]
        return cells + [f"{found['peer_open_ms'] / found['open_ms']:.1f}"]


def compare(tacit, folder, names):
    paths = [os.path.join(folder, n + ".onnx") for n in names] or sorted(glob.glob(os.path.join(folder, "*.onnx")))
    print("| network | apart | 1 thread, ms | ratio | 2 threads, ms | ratio | opening, ratio |")
    print("|---|---|---|---|---|---|---|")
    for path in paths:
        cells = compare_one(tacit, path)
        print("| " + " | ".join([os.path.basename(path)[:-5]] + cells) + " |", flush=True)


def main():
    if len(sys.argv) > 2 and sys.argv[1] == "make":
        make(sys.argv[2], sys.argv[3:])
    elif len(sys.argv) > 3 and sys.argv[1] == "compare":
        compare(sys.argv[2], sys.argv[3], sys.argv[4:])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
