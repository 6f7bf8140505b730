"""Small modules of the kinds that `nest capture` is checked on, in plain torch."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

WIDTH, HEADS, VOCABULARY = 64, 4, 101


class Attention(nn.Module):  # type: ignore[misc]
    """Attention with as many heads for keys and values as asked; rotated where it is given angles."""

    def __init__(
        self, width: int, heads: int, kv_heads: int, *, causal: bool, bias: bool, dropout: float = 0.0
    ) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.size = heads, kv_heads, width // heads
        self.causal, self.dropout = causal, dropout
        self.query = nn.Linear(width, width, bias=bias)
        self.key = nn.Linear(width, kv_heads * self.size, bias=bias)
        self.value = nn.Linear(width, kv_heads * self.size, bias=bias)
        self.out = nn.Linear(width, width, bias=bias)

    def forward(self, x: Tensor, other: Tensor | None = None, angles: Tensor | None = None) -> Tensor:
        """Look at ``other``, or at itself."""
        seen = x if other is None else other
        query = self._heads(self.query(x), self.heads)
        key, value = self._heads(self.key(seen), self.kv_heads), self._heads(self.value(seen), self.kv_heads)
        if angles is not None:
            query, key = rotated(query, angles), rotated(key, angles)
        if self.kv_heads < self.heads:
            key, value = (each.repeat_interleave(self.heads // self.kv_heads, 1) for each in (key, value))
        dropped = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=self.causal, dropout_p=dropped)
        return self.out(mixed.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:2], heads, self.size).transpose(1, 2)


def rotated(x: Tensor, angles: Tensor) -> Tensor:
    """Return queries or keys with their positions."""
    one, two = x.chunk(2, -1)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([one * cos - two * sin, two * cos + one * sin], -1)


class RMSNorm(nn.Module):  # type: ignore[misc]
    """Root mean square norm, step by step."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled input."""
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


class GptBlock(nn.Module):  # type: ignore[misc]
    """A layer of GPT-2."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, heads, causal=True, bias=True)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.drop = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next state."""
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.down(F.gelu(self.up(self.norm2(x)))))


class Gpt(nn.Module):  # type: ignore[misc]
    """GPT-2 with a tied head."""

    def __init__(self, layers: int, width: int, heads: int, context: int, dropout: float) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits."""
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class GatedMlp(nn.Module):  # type: ignore[misc]
    """SwiGLU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(width, inner, bias=False), nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the gated product."""
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):  # type: ignore[misc]
    """Routed experts as in Mixtral, each of which takes an equal share of the rows, the rest dropped or padded."""

    def __init__(self, width: int, inner: int, experts: int, chosen: int) -> None:
        super().__init__()
        self.chosen = chosen
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(GatedMlp(width, inner) for _ in range(experts))

    def forward(self, x: Tensor) -> Tensor:
        """Return what the chosen experts make of each token, weighted."""
        rows = x.flatten(0, 1)
        shares, picks = self.router(rows).softmax(-1).topk(self.chosen, -1)
        order = picks.flatten().argsort()
        sources = order // self.chosen
        taken = rows[sources].chunk(len(self.experts))
        made = torch.cat([expert(part) for expert, part in zip(self.experts, taken, strict=True)])
        weighted = made * shares.flatten()[order].unsqueeze(-1)
        return torch.zeros_like(rows).index_add(0, sources, weighted).view_as(x)


class LoopedExperts(Experts):
    """The same rows as they come, which only running it tells."""

    def forward(self, x: Tensor) -> Tensor:
        """Return what the chosen experts make of each token, weighted."""
        rows = x.flatten(0, 1)
        shares, picks = self.router(rows).softmax(-1).topk(self.chosen, -1)
        total = torch.zeros_like(rows)
        for at, expert in enumerate(self.experts):
            row, pick = torch.where(picks == at)
            total = total.index_add(0, row, expert(rows[row]) * shares[row, pick, None])
        return total.view_as(x)


class LlamaBlock(nn.Module):  # type: ignore[misc]
    """A layer of Llama, or with experts of Mixtral."""

    def __init__(self, width: int, heads: int, kv_heads: int, mlp: nn.Module) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads, kv_heads, causal=True, bias=False)
        self.mlp = mlp

    def forward(self, x: Tensor, angles: Tensor) -> Tensor:
        """Return the next state."""
        x = x + self.attention(self.norm1(x), angles=angles)
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):  # type: ignore[misc]
    """Llama, or with experts Mixtral."""

    def __init__(self, layers: int, heads: tuple[int, int], inner: int, experts: type | None) -> None:
        super().__init__()
        width = WIDTH
        self.embed = nn.Embedding(VOCABULARY, width)
        made = (experts(width, inner, 4, 2) if experts else GatedMlp(width, inner) for _ in range(layers))
        self.layers = nn.ModuleList(LlamaBlock(width, *heads, mlp) for mlp in made)
        self.norm, self.lm_head = RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)
        self.size = width // heads[0]

    def forward(self, tokens: Tensor) -> Tensor:
        """Return logits."""
        x = self.embed(tokens)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        rates = 1e4 ** (-torch.arange(0, self.size, 2, device=tokens.device) / self.size)
        angles = torch.outer(places, rates)
        for layer in self.layers:
            x = layer(x, angles)
        return self.lm_head(self.norm(x))


class BertLayer(nn.Module):  # type: ignore[misc]
    """A layer of BERT: norms behind, dropout everywhere."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads, heads, causal=False, bias=True, dropout=0.1)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm1, self.norm2, self.drop = nn.LayerNorm(width), nn.LayerNorm(width), nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next state."""
        x = self.norm1(x + self.drop(self.attention(x)))
        return self.norm2(x + self.drop(self.down(F.gelu(self.up(x)))))


class T5Layer(nn.Module):  # type: ignore[misc]
    """A layer of T5: one of the decoder looks at the encoder, too."""

    def __init__(self, width: int, heads: int, *, decoder: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList(RMSNorm(width) for _ in range(3 if decoder else 2))
        self.itself = Attention(width, heads, heads, causal=decoder, bias=False)
        self.cross = Attention(width, heads, heads, causal=False, bias=False) if decoder else None
        self.up, self.down = nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)

    def forward(self, x: Tensor, encoded: Tensor | None = None) -> Tensor:
        """Return the next state."""
        x = x + self.itself(self.norms[0](x))
        if self.cross is not None:
            x = x + self.cross(self.norms[1](x), encoded)
        return x + self.down(self.up(self.norms[-1](x)).relu())


class T5(nn.Module):  # type: ignore[misc]
    """An encoder-decoder that shares its embedding."""

    def __init__(self, layers: int, width: int, heads: int) -> None:
        super().__init__()
        self.shared = nn.Embedding(VOCABULARY, width)
        self.encoder = nn.ModuleList(T5Layer(width, heads, decoder=False) for _ in range(layers))
        self.encoded = RMSNorm(width)
        self.decoder = nn.ModuleList(T5Layer(width, heads, decoder=True) for _ in range(layers))
        self.norm, self.head = RMSNorm(width), nn.Linear(width, VOCABULARY, bias=False)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return logits of the target."""
        x = self.shared(source)
        for layer in self.encoder:
            x = layer(x)
        encoded, y = self.encoded(x), self.shared(target)
        for layer in self.decoder:
            y = layer(y, encoded)
        return self.head(self.norm(y))


class Bottleneck(nn.Module):  # type: ignore[misc]
    """A block of ResNet-50."""

    def __init__(self, entering: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(entering, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width)
        self.conv3, self.norm3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut: nn.Module = nn.Identity()
        if entering != 4 * width:
            self.shortcut = nn.Sequential(
                nn.Conv2d(entering, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return the next image."""
        y = self.relu(self.norm1(self.conv1(x)))
        y = self.relu(self.norm2(self.conv2(y)))
        return self.relu(self.norm3(self.conv3(y)) + self.shortcut(x))


class ResNet(nn.Module):  # type: ignore[misc]
    """ResNet of bottlenecks."""

    def __init__(self, blocks: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, 1),
        )
        rows, entering = [], width
        for at, count in enumerate(blocks):
            inner = width * 2**at
            first = Bottleneck(entering, inner, 2 if at else 1)
            rows.append(nn.Sequential(first, *(Bottleneck(4 * inner, inner, 1) for _ in range(count - 1))))
            entering = 4 * inner
        self.stages = nn.Sequential(*rows)
        self.head = nn.Linear(entering, 10)

    def forward(self, image: Tensor) -> Tensor:
        """Return logits."""
        return self.head(self.stages(self.stem(image)).mean((2, 3)))


def gpt(layers: int = 2, width: int = WIDTH, dropout: float = 0.0) -> nn.Module:
    """Return GPT-2."""
    return Gpt(layers, width, HEADS, 64, dropout)


def llama(layers: int = 2) -> nn.Module:
    """Return Llama with two key-value heads."""
    return Llama(layers, (HEADS, 2), 176, None)


def mixtral(layers: int = 2) -> nn.Module:
    """Return Mixtral whose experts take equal shares."""
    return Llama(layers, (HEADS, 2), 96, Experts)


def looped(layers: int = 2) -> nn.Module:
    """Return Mixtral whose experts take what comes."""
    return Llama(layers, (HEADS, 2), 96, LoopedExperts)


def bert(layers: int = 2) -> nn.Module:
    """Return layers of BERT over vectors."""
    return nn.Sequential(*(BertLayer(WIDTH, HEADS) for _ in range(layers)))


def t5(layers: int = 2) -> nn.Module:
    """Return T5."""
    return T5(layers, WIDTH, HEADS)


def resnet() -> nn.Module:
    """Return a small ResNet of bottlenecks."""
    return ResNet((2, 2), 16)


class Contrast(nn.Module):  # type: ignore[misc]
    """Compares every vector of a batch with every other."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum of all products."""
        return (x @ x.T).sum()


class Flat(nn.Module):  # type: ignore[misc]
    """Layers without submodules."""

    def __init__(self, layers: int, width: int) -> None:
        super().__init__()
        self.weights = nn.ParameterList(torch.ones(width, width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        """Return what is left."""
        for weight in self.weights:
            x = (x @ weight).relu() + 1
        return x


class Recurrent(nn.Module):  # type: ignore[misc]
    """One block, three times."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.block = nn.ModuleList([nn.Sequential(nn.Linear(width, width), nn.ReLU())])

    def forward(self, x: Tensor) -> Tensor:
        """Return what is left."""
        for _ in range(3):
            x = self.block[0](x)
        return x


def contrast() -> nn.Module:
    """Return what is not linear in its batch."""
    return Contrast()


def flat() -> nn.Module:
    """Return four layers in one module."""
    return Flat(4, 16)


def recurrent() -> nn.Module:
    """Return one block that runs three times."""
    return Recurrent(16)


class Lstm(nn.Module):  # type: ignore[misc]
    """A recurrent layer and its head."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.layer, self.head = nn.LSTM(width, 2 * width, batch_first=True), nn.Linear(2 * width, 4)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits of every step."""
        return self.head(self.layer(x)[0])


class Level(nn.Module):  # type: ignore[misc]
    """One level of a U-Net."""

    def __init__(self, entering: int, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(entering, width, 3, padding=1), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        """Return the next image."""
        return self.norm(self.conv(x)).relu()


class UNet(nn.Module):  # type: ignore[misc]
    """Down and up again, with a connection that skips what is between."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = Level(3, width), Level(width, 2 * width)
        self.up = nn.ConvTranspose2d(2 * width, width, 2, 2)
        self.third, self.head = Level(2 * width, width), nn.Conv2d(width, 1, 1)

    def forward(self, image: Tensor) -> Tensor:
        """Return an image."""
        wide = self.first(image)
        narrow = self.second(F.max_pool2d(wide, 2))
        return self.head(self.third(torch.cat([wide, self.up(narrow)], 1)))


class Mixed(nn.Module):  # type: ignore[misc]
    """A product in mixed precision."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        """Return it in the precision of the input."""
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layer(x).float()


def lstm() -> nn.Module:
    """Return a recurrent layer."""
    return Lstm(16)


def unet() -> nn.Module:
    """Return a U-Net of one level."""
    return UNet(8)


def mixed() -> nn.Module:
    """Return what changes its precision itself."""
    return Mixed()
