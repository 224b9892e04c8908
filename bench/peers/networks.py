"""The networks of Cleave as PyTorch modules: the same structure, the same state_dict names.

    net = build("resnet18", channels=3, height=32, width=32, classes=10, form="small")

Two forms. `large` is torchvision's network, unchanged but for the number of input channels and
classes (no weights, no auxiliary heads, no input transform, VGG without batch norm). `small` is the
network for 28x28 and 32x32 images. mlp and lenet5 have one form; alexnet, alexnet7, googlenet and
inceptionv3 have only the large one; alexnet7 is alexnet with an adaptive pool to 7x7. Cleave's own builders must give the parameters listed here, in this order.

Structure of the small forms. "conv" is without bias, followed by batch norm (eps 1e-5, momentum
0.1), unless it says otherwise; padding keeps the size at stride 1 (1 for 3x3, 0 for 1x1).

mlp          flatten; fc1 -> 512, ReLU; fc2 -> 256, ReLU; fc3 -> classes.
lenet5       conv1 6@5x5 pad 2 (bias, no batch norm), ReLU, max pool 2; conv2 16@5x5 pad 0 (bias, no
             batch norm), ReLU, max pool 2; flatten; fc1 -> 120, ReLU; fc2 -> 84, ReLU; fc3.
             Pools 2x2, stride 2, floor. 28x28 gives fc1 400 inputs; other sizes what they give.
vgg11, 16    3x3 convs with bias, pad 1, no batch norm, each followed by ReLU; blocks of 64, 128,
             256, 512, 512 channels (1,1,2,2,2 or 2,2,3,3,3 convs), each closed by a 2x2 max pool of
             stride 2. The pool is left out where the map is already 1x1 (the fifth, for 28x28).
             Global average pool if the map is not 1x1 by then; `classifier`: Linear(512, classes).
resnet*      conv1 3x3 stride 1 -> 64, bn1, ReLU, no max pool; layer1..4 of 64, 128, 256, 512, the
             first block of layer2..4 with stride 2; global average pool (4x4 for 28 and 32); fc.
             Basic block (18): conv1 3x3 stride s, bn1, ReLU, conv2 3x3, bn2. Bottleneck (50, 101,
             152): conv1 1x1, bn1, ReLU, conv2 3x3 stride s, bn2, ReLU, conv3 1x1 -> 4*width, bn3.
             Then + shortcut, ReLU. Shortcut: identity, or where stride or channels change
             downsample.0 (1x1 conv, stride s) and downsample.1 (batch norm).
mobilenetv2  conv1 3x3 stride 1 -> 32, bn1, ReLU; 17 blocks layers.0..16; conv2 1x1 320 -> 1280, bn2,
             ReLU; global average pool; linear. Stages (t, channels, n, stride of the first):
             (1,16,1,1) (6,24,2,1) (6,32,3,2) (6,64,4,2) (6,96,3,1) (6,160,3,2) (6,320,1,1).
             Block: conv1 1x1 -> t*in, bn1, ReLU6 (also for t = 1); conv2 3x3 depthwise stride s,
             bn2, ReLU6; conv3 1x1 -> out, bn3. If s == 1: + shortcut, which is the identity, or
             where in != out shortcut.0 (1x1 conv) and shortcut.1 (batch norm). No activation after.

Names, in state_dict order (batch norm: weight, bias, running_mean, running_var):

mlp, lenet5  [conv1, conv2,] fc1, fc2, fc3, each .weight .bias
vgg          features.N .weight .bias, N counting convs, ReLUs and pools; classifier .weight .bias
             vgg11: N = 0 3 6 8 11 13 16 18; vgg16: 0 2 5 7 10 12 14 17 19 21 24 26 28
resnet       conv1, bn1, layerL.B.{conv1,bn1,conv2,bn2[,conv3,bn3][,downsample.0,downsample.1]}, fc
mobilenetv2  conv1, bn1, layers.B.{conv1,bn1,conv2,bn2,conv3,bn3[,shortcut.0,shortcut.1]}, conv2,
             bn2, linear

Details of the large forms that are easy to miss: GoogLeNet's and Inception's batch norms have eps
1e-3; GoogLeNet's max pools round up (ceil_mode) and its "5x5" branch3 is a 3x3 convolution;
Inception's 3x3 average pools have padding 1 and count the padding; the adaptive 6x6 (AlexNet) and
7x7 (VGG) pools also enlarge small maps; MobileNetV2's block with t = 1 has no expansion there.

`python3 networks.py` prints the parameter counts; `python3 networks.py NAME CxHxW CLASSES FORM`
lists one network's state_dict.
"""

import sys

import torch
from torch import nn
from torch.nn import functional as F

NAMES = (
    "mlp",
    "lenet5",
    "alexnet",
    "alexnet7",
    "vgg11",
    "vgg16",
    "resnet18",
    "resnet50",
    "resnet101",
    "resnet152",
    "mobilenetv2",
    "googlenet",
    "inceptionv3",
)


class Mlp(nn.Module):
    def __init__(self, n_inputs, classes):
        super().__init__()
        self.fc1 = nn.Linear(n_inputs, 512)
        self.fc2 = nn.Linear(512, 256)
        self.fc3 = nn.Linear(256, classes)

    def forward(self, x):
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))


class LeNet5(nn.Module):
    def __init__(self, channels, height, width, classes):
        super().__init__()
        rows, columns = (height // 2 - 4) // 2, (width // 2 - 4) // 2
        if rows < 1 or columns < 1:
            raise ValueError(f"lenet5: {height}x{width} images are too small, 12x12 is the least")
        self.conv1 = nn.Conv2d(channels, 6, 5, padding=2)
        self.conv2 = nn.Conv2d(6, 16, 5)
        self.fc1 = nn.Linear(16 * rows * columns, 120)
        self.fc2 = nn.Linear(120, 84)
        self.fc3 = nn.Linear(84, classes)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv1(x)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2)
        x = F.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc3(F.relu(self.fc2(x)))


class SmallVgg(nn.Module):
    def __init__(self, convs_per_block, channels, height, width, classes):
        super().__init__()
        layers = []
        for out, n_convs in zip((64, 128, 256, 512, 512), convs_per_block):
            for _ in range(n_convs):
                layers += [nn.Conv2d(channels, out, 3, padding=1), nn.ReLU(inplace=True)]
                channels = out
            if min(height, width) > 1:
                layers.append(nn.MaxPool2d(2, 2))
                height, width = height // 2, width // 2
        self.features = nn.Sequential(*layers)
        self.pools_globally = (height, width) != (1, 1)
        self.classifier = nn.Linear(512, classes)

    def forward(self, x):
        x = self.features(x)
        if self.pools_globally:
            x = F.adaptive_avg_pool2d(x, 1)
        return self.classifier(torch.flatten(x, 1))


def conv_1x1_and_bn(channels, out, stride):
    return nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, channels, width, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        changes = stride != 1 or channels != width
        self.downsample = conv_1x1_and_bn(channels, width, stride) if changes else None

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(x)) + shortcut, inplace=True)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, channels, width, stride):
        super().__init__()
        out = width * self.expansion
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        changes = stride != 1 or channels != out
        self.downsample = conv_1x1_and_bn(channels, out, stride) if changes else None

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = F.relu(self.bn2(self.conv2(x)), inplace=True)
        return F.relu(self.bn3(self.conv3(x)) + shortcut, inplace=True)


class SmallResNet(nn.Module):
    def __init__(self, block, blocks_per_layer, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        channels = 64
        for number, n_blocks in enumerate(blocks_per_layer, start=1):
            width = 32 << number
            blocks = []
            for b in range(n_blocks):
                blocks.append(block(channels, width, 2 if b == 0 and number > 1 else 1))
                channels = width * block.expansion
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.fc = nn.Linear(channels, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class InvertedResidual(nn.Module):
    def __init__(self, channels, out, expansion, stride):
        super().__init__()
        width = expansion * channels
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, groups=width, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out)
        self.adds = stride == 1
        self.shortcut = None
        if self.adds and channels != out:
            self.shortcut = conv_1x1_and_bn(channels, out, 1)

    def forward(self, x):
        y = F.relu6(self.bn1(self.conv1(x)), inplace=True)
        y = F.relu6(self.bn2(self.conv2(y)), inplace=True)
        y = self.bn3(self.conv3(y))
        if not self.adds:
            return y
        return y + (x if self.shortcut is None else self.shortcut(x))


class SmallMobileNetV2(nn.Module):
    # Expansion, channels, blocks, stride of the first block.
    STAGES = (
        (1, 16, 1, 1),
        (6, 24, 2, 1),
        (6, 32, 3, 2),
        (6, 64, 4, 2),
        (6, 96, 3, 1),
        (6, 160, 3, 2),
        (6, 320, 1, 1),
    )

    def __init__(self, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 32, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(32)
        blocks = []
        channels = 32
        for expansion, out, n_blocks, stride in self.STAGES:
            for b in range(n_blocks):
                blocks.append(InvertedResidual(channels, out, expansion, stride if b == 0 else 1))
                channels = out
        self.layers = nn.Sequential(*blocks)
        self.conv2 = nn.Conv2d(channels, 1280, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(1280)
        self.linear = nn.Linear(1280, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        x = self.layers(x)
        x = F.relu(self.bn2(self.conv2(x)), inplace=True)
        return self.linear(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def build_small(name, channels, height, width, classes):
    if name == "vgg11":
        return SmallVgg((1, 1, 2, 2, 2), channels, height, width, classes)
    if name == "vgg16":
        return SmallVgg((2, 2, 3, 3, 3), channels, height, width, classes)
    if name == "resnet18":
        return SmallResNet(BasicBlock, (2, 2, 2, 2), channels, classes)
    if name == "resnet50":
        return SmallResNet(Bottleneck, (3, 4, 6, 3), channels, classes)
    if name == "resnet101":
        return SmallResNet(Bottleneck, (3, 4, 23, 3), channels, classes)
    if name == "resnet152":
        return SmallResNet(Bottleneck, (3, 8, 36, 3), channels, classes)
    if name == "mobilenetv2":
        return SmallMobileNetV2(channels, classes)
    raise ValueError(f"{name} has no small form; use the large one")


def build_large(name, channels, classes):
    # Imported here: the small forms, mlp and lenet5 work without torchvision.
    from torchvision import models

    function = {"mobilenetv2": "mobilenet_v2", "inceptionv3": "inception_v3"}.get(name, name)
    options = {"num_classes": classes}
    if name in ("googlenet", "inceptionv3"):
        # Their own initialisation takes many seconds; it changes no shape.
        options.update(aux_logits=False, transform_input=False, init_weights=False)
    if name == "alexnet7":
        net = models.alexnet(weights=None, **options)
        net.avgpool = nn.AdaptiveAvgPool2d(7)
        net.classifier[1] = nn.Linear(256 * 7 * 7, 4096)
    else:
        net = getattr(models, function)(weights=None, **options)
    if channels != 3:
        replace_first_conv(net, channels)
    return net


def replace_first_conv(net, channels):
    """Gives the first convolution of `net` another number of input channels."""
    name, conv = next((n, m) for n, m in net.named_modules() if isinstance(m, nn.Conv2d))
    parent, _, attribute = name.rpartition(".")
    setattr(
        net.get_submodule(parent),
        attribute,
        nn.Conv2d(
            channels,
            conv.out_channels,
            conv.kernel_size,
            conv.stride,
            conv.padding,
            bias=conv.bias is not None,
        ),
    )


def build(name, channels, height, width, classes, form):
    """The network `name` for images [channels, height, width]; form is "small" or "large"."""
    if name not in NAMES:
        raise ValueError(f"no network '{name}'; there are: {', '.join(NAMES)}")
    if form not in ("small", "large"):
        raise ValueError(f"form is '{form}'; it must be 'small' or 'large'")
    if name == "mlp":
        return Mlp(channels * height * width, classes)
    if name == "lenet5":
        return LeNet5(channels, height, width, classes)
    if form == "small":
        return build_small(name, channels, height, width, classes)
    return build_large(name, channels, classes)


def count_parameters(net):
    return sum(p.numel() for p in net.parameters())


# Name, form, shape, classes, parameters: the published figures.
KNOWN_COUNTS = (
    ("lenet5", "small", (1, 28, 28), 10, 61706),
    ("resnet18", "small", (3, 32, 32), 10, 11173962),
    ("resnet50", "small", (3, 32, 32), 10, 23520842),
    ("resnet152", "small", (3, 32, 32), 10, 58156618),
    ("mobilenetv2", "small", (3, 32, 32), 10, 2296922),
    ("alexnet", "large", (3, 224, 224), 1000, 61100840),
    ("alexnet7", "large", (3, 224, 224), 1000, 74732328),
    ("vgg11", "large", (3, 224, 224), 1000, 132863336),
    ("vgg16", "large", (3, 224, 224), 1000, 138357544),
    ("resnet18", "large", (3, 224, 224), 1000, 11689512),
    ("resnet50", "large", (3, 224, 224), 1000, 25557032),
    ("resnet152", "large", (3, 224, 224), 1000, 60192808),
    ("mobilenetv2", "large", (3, 224, 224), 1000, 3504872),
    ("googlenet", "large", (3, 224, 224), 1000, 6624904),
    ("inceptionv3", "large", (3, 299, 299), 1000, 23834568),
)


def check_known_counts():
    wrong = 0
    for name, form, shape, classes, expected in KNOWN_COUNTS:
        counted = count_parameters(build(name, *shape, classes, form))
        wrong += counted != expected
        verdict = "" if counted == expected else f"   expected {expected:,}"
        print(f"{name:12} {form:6} {counted:>12,}{verdict}")
    return 1 if wrong else 0


def main(arguments):
    if not arguments:
        return check_known_counts()
    if len(arguments) != 4:
        print("use: networks.py [NAME CxHxW CLASSES small|large]", file=sys.stderr)
        return 2
    name, shape, classes, form = arguments
    net = build(name, *(int(n) for n in shape.split("x")), int(classes), form)
    for key, tensor in net.state_dict().items():
        print(f"{key:48} {list(tensor.shape)}")
    print(f"{count_parameters(net):,} parameters")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
