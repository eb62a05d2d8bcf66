# R: linear models on resampled data, and a hierarchical clustering.
set.seed(1)
data <- data.frame(matrix(rnorm(20000 * 8), ncol = 8))
data$y <- rowSums(data) + rnorm(20000)
for (k in 1:150) {
  part <- data[sample(nrow(data), replace = TRUE), ]
  fit <- lm(y ~ ., data = part)
}
tree <- hclust(dist(as.matrix(data[1:3000, ])))
