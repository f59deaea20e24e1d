//! The part of a generation that knows nothing of the model: from logits to a token, to text, to the end.

use std::sync::Arc;

use cera_sample::{Constraint, Params, Sampler, Vocabulary};
use cera_token::{Detokenizer, Shown, Tokenizer};

use crate::stop::StopStrings;
use crate::{Error, Finish, Logprobs, Request, Token, Want};

/// One answer's state. Nothing in it depends on what else the model is busy with.
pub(crate) struct Decoding {
    choice: usize,
    sampler: Sampler,
    /// The choice is always the greatest logit, as the model gives it.
    greedy: bool,
    logprobs: Option<usize>,
    limit: usize,
    least: usize,
    ignore_eog: bool,
    constraint: Option<Constraint>,
    tokenizer: Option<Tokenizer>,
    detokenizer: Option<Detokenizer>,
    stops: StopStrings,
    generated: usize,
}

impl Decoding {
    /// Answer number `choice` of a request, which goes on from `tokens`, under a constraint where the request has a grammar.
    pub fn new(
        request: &Request,
        choice: usize,
        tokenizer: Option<&Tokenizer>,
        tokens: &[u32],
        constraint: Option<Constraint>,
    ) -> Result<Self, Error> {
        request.check(tokenizer)?;
        let seed = request.sampling.seed.wrapping_add(choice as u64);
        let mut sampler = sampler(Params { seed, ..request.sampling.clone() }, tokenizer)?;
        tokens.iter().for_each(|&token| sampler.accept(token));
        Ok(Self {
            choice,
            sampler,
            greedy: request.sampling.is_argmax(),
            logprobs: request.logprobs,
            limit: request.max_tokens.unwrap_or(usize::MAX),
            least: request.min_tokens,
            ignore_eog: request.ignore_eog,
            constraint,
            tokenizer: tokenizer.cloned(),
            detokenizer: tokenizer.map(|t| Detokenizer::new(t, Shown::Text)),
            stops: StopStrings::new(&request.stop),
            generated: 0,
        })
    }

    /// Tokens generated so far.
    pub fn generated(&self) -> usize {
        self.generated
    }

    /// Which of the request's answers this is.
    pub fn choice(&self) -> usize {
        self.choice
    }

    /// What the next choice needs of the model's last row.
    pub fn want(&self) -> Want {
        // The backend's own choice is the same token, and spares the row of logits.
        let own = self.greedy && self.logprobs.is_none() && !self.masks_eog() && self.constraint.is_none();
        match (self.limit, own) {
            (0, _) => Want::Nothing,
            (_, true) => Want::Token,
            (_, false) => Want::Logits,
        }
    }

    /// Why there is nothing to generate behind `length` tokens of at most `context`, where that is so from the start.
    pub fn ended(&self, length: usize, context: usize) -> Option<Finish> {
        if self.generated >= self.limit {
            Some(Finish::Length)
        } else if length >= context {
            Some(Finish::Context)
        } else {
            None
        }
    }

    /// The next token: from the most likely one and, where [`want`](Self::want) said so, the row of logits (`[vocabulary]`).
    pub fn choose(&mut self, best: u32, logits: &mut [f32]) -> Result<(u32, Option<Logprobs>), Error> {
        if self.want() != Want::Logits {
            return Ok((best, None));
        }
        // Choosing changes the row, and whose probability is wanted shows behind it.
        let raw = self.logprobs.map(|top| (top, logits.to_vec()));
        if let Some(constraint) = &mut self.constraint {
            constraint.apply(logits)?;
        }
        if self.masks_eog() {
            self.mask_eog(logits);
        }
        let token = self.sampler.sample(logits)?;
        Ok((token, raw.map(|(top, raw)| Logprobs::new(&raw, token, top))))
    }

    /// Takes the token that was chosen as the last of now `length` tokens. Gives it with its text, and why the answer ends
    /// with it, where it does.
    pub fn take(
        &mut self,
        id: u32,
        logprobs: Option<Logprobs>,
        length: usize,
        context: usize,
    ) -> Result<(Token, Option<Finish>), Error> {
        let counts = self.generated >= self.least;
        self.sampler.accept(id);
        if let Some(constraint) = &mut self.constraint {
            constraint.accept(id)?;
        }
        let complete = self.constraint.as_ref().is_some_and(Constraint::is_complete);
        self.generated += 1;
        let token = |text| Token { choice: self.choice, id, text, logprobs };
        let (Some(tokenizer), Some(detokenizer)) = (&self.tokenizer, &mut self.detokenizer) else {
            return Ok((token(String::new()), self.ended(length, context)));
        };
        let ends = tokenizer.is_eog(id) && (complete || !self.ignore_eog);
        let mut finish = ends.then_some(Finish::Eog);
        let mut text = String::new();
        if finish.is_none() {
            // Rows of the output that only fill it up are no tokens, and have no text.
            let known = (id as usize) < tokenizer.len();
            let piece = if known { detokenizer.push(id)? } else { "" };
            if counts {
                let (out, stopped) = self.stops.push(piece);
                text = out;
                finish = stopped.then_some(Finish::Stop);
            } else {
                text.push_str(piece);
            }
        }
        if finish.is_none() {
            finish = if complete {
                Some(Finish::Eog)
            } else if self.generated >= self.limit {
                Some(Finish::Length)
            } else if length >= context {
                Some(Finish::Context)
            } else {
                None
            };
        }
        if matches!(finish, Some(Finish::Eog | Finish::Length | Finish::Context)) {
            // What was held back turns out to be no stop string, or the bytes of no character.
            let (out, stopped) = self.stops.push(detokenizer.finish());
            text.push_str(&out);
            if stopped {
                finish = Some(Finish::Stop);
            } else {
                text.push_str(&self.stops.finish());
            }
        }
        Ok((token(text), finish))
    }

    /// Whether no token that ends an answer may be chosen yet.
    fn masks_eog(&self) -> bool {
        self.generated < self.least && !self.ignore_eog && self.tokenizer.is_some()
    }

    /// Rules out the tokens that end an answer, unless a constraint leaves nothing else.
    fn mask_eog(&self, logits: &mut [f32]) {
        let ends = self.tokenizer.as_ref().map(Tokenizer::eog).unwrap_or_default();
        let mut before = Vec::with_capacity(ends.len());
        for &id in ends {
            if let Some(logit) = logits.get_mut(id as usize) {
                before.push((id as usize, std::mem::replace(logit, f32::NEG_INFINITY)));
            }
        }
        if self.constraint.is_some() && logits.iter().all(|&l| l == f32::NEG_INFINITY) {
            for (id, was) in before {
                if let Some(logit) = logits.get_mut(id) {
                    *logit = was;
                }
            }
        }
    }
}

/// The sampler, with what tokens spell where it has to know.
fn sampler(params: Params, tokenizer: Option<&Tokenizer>) -> Result<Sampler, Error> {
    Ok(match tokenizer {
        Some(tokenizer) if params.needs_vocabulary() => {
            Sampler::with_vocabulary(params, Arc::new(Spelled(tokenizer.clone())))?
        }
        _ => Sampler::new(params)?,
    })
}

/// What tokens add to an answer's text.
struct Spelled(Tokenizer);

impl Vocabulary for Spelled {
    fn piece(&self, token: u32) -> &[u8] {
        // Rows of the output that only fill it up are no tokens.
        self.0.piece(token, Shown::Text).unwrap_or_default()
    }
}
